"""Plug-ins: a package that is installed, a file that is loaded, and one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.cli.main import main
from stepwell.ir.syntax import text
from stepwell.plugins import plugins
from stepwell.plugins.registry import REGISTRY

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin"
TOY_MODEL = """
import torch
from stepwell_toy.operators import twice

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.b = torch.nn.Parameter(torch.full((2, 3), 0.1))
    def forward(self, x, y):
        return torch.relu(twice(x * 1.5) + y) + self.b

def make():
    torch.manual_seed(0)
    return M(), (torch.randn(2, 3), torch.randn(2, 3))
"""
MINE = """
from dataclasses import dataclass
import torch
from stepwell import Rewrite
from stepwell.dialects import aten

@dataclass(frozen=True)
class RemoveDoubleNegation(Rewrite):
    name = "my-double-negation"
    anchors = (aten.NegDefault,)
    limit: int = 3

    def match(self, op, program):
        inner = op.operands[0].owner
        return (op, inner.operands[0]) if isinstance(inner, aten.NegDefault) else None

    def build(self, match, rw):
        op, x = match
        rw.replace(op, [x])

class M(torch.nn.Module):
    def forward(self, x, *, y):
        return -(-x) + y * 2

def make():
    return {"module": M(), "args": (torch.randn(2, 3),), "kwargs": {"y": torch.randn(3)}}

def by_keyword():
    return M(), {"x": torch.randn(2, 3), "y": torch.randn(3)}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the template in it, as pip installs it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    for path in TEMPLATE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            place = source / path.relative_to(TEMPLATE)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    pip = "-m pip install --quiet --no-deps --no-build-isolation --no-index --target".split()
    command = [sys.executable, *pip, str(folder / "site"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has looked for no plug-in; what a test loads is taken back."""
    before = set(REGISTRY.plugins)
    monkeypatch.setattr(plugins, "_LOADED", threading.Event())
    yield
    for name in set(REGISTRY.plugins) - before:
        plugins.unload_plugin(name)


@pytest.fixture
def toy(site: Path, fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The template is installed; the spec of a model that its machine can run."""
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "toy_model.py").write_text(TOY_MODEL)
    monkeypatch.chdir(tmp_path)
    return "toy_model.py:make"


@pytest.fixture
def mine(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_every_command_knows_an_installed_plugin(
    toy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins"]) == 0
    assert "targets: toy" in capsys.readouterr().out

    assert main(["lower", toy, "-t", "toy", "-o", "m.toy", "--emit-ir", "m.mlir"]) == 0
    assert "merge-scales" in capsys.readouterr().out
    assert main(["check", toy, "-t", "toy"]) == 0
    assert "artifact (toy)" in capsys.readouterr().out
    assert main(["explain", toy, "-t", "toy"]) == 0
    assert "toy.scale" in capsys.readouterr().out
    assert main(["show", toy, "-t", "toy", "--html", "page.html"]) == 0
    assert "toy.scale" in Path("page.html").read_text()
    assert main(["show", "m.toy"]) == 0
    assert "toy.scale" in capsys.readouterr().out
    assert main(["explain", "m.toy"]) == 0
    assert main(["check", "m.toy"]) == 0
    assert "artifact (toy)" in capsys.readouterr().out
    assert main(["run", "m.mlir"]) == 0  # Its constants lie beside it.
    assert main(["run", "m.toy"]) == 0
    assert "output 0: tensor" in capsys.readouterr().out
    assert main(["opt", "m.mlir"]) == 0
    assert "toy.relu" in capsys.readouterr().out


BROKEN = """
from dataclasses import dataclass
from stepwell import Rewrite
from stepwell_toy.dialect import ReluOp

@dataclass(frozen=True)
class BrokenRelu(Rewrite):
    name = "broken-relu"
    anchors = (ReluOp,)

    def match(self, op, program):
        return op

    def build(self, match, rw):
        raise ValueError("no such instruction")
"""


def test_a_step_that_fails_in_a_plugins_dialect_is_replayed_and_reduced(
    toy: str, capsys: pytest.CaptureFixture[str], forks: Forks
) -> None:
    Path("broken.py").write_text(BROKEN)
    load = ["--load", "broken.py"]
    assert main(["lower", toy, "-t", "toy", "--after", "merge-scales=broken-relu", *load]) == 1
    assert "no such instruction" in capsys.readouterr().err
    assert main(["opt", "repro.mlir", *load]) == 1
    # A process of its own: the others know the dialect by now.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = ["-m", "stepwell", "reduce", "repro.mlir", *load]
    ran = forks.run(command, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr
    small = Path("repro.small.mlir").read_text()
    assert "toy.relu" in small and "toy.scale" not in small


def test_a_sweep_and_a_replay_lower_to_a_plugins_target(toy: str) -> None:
    from stepwell.model_zoo.catalogue.models import find
    from stepwell.model_zoo.regression import child
    from stepwell.model_zoo.sweep.jobs import Job, tasks_of
    from stepwell.model_zoo.sweep.measuring import measure

    entry = find(toy)
    (task,) = tasks_of([Job(entry.name, "toy")], {entry.name: entry})
    told: list[tuple[str, Any]] = []
    measure(task, lambda *said: told.append(said))
    (row,) = (value for kind, value in told if kind == "row")
    assert row.outcome == "right" and row.size

    exported = torch.export.export(torch.nn.ReLU(), (torch.randn(2, 3),))
    figures = child.lowered(exported, "toy")
    assert figures["ops"]["toy.relu"] == 1 and figures["bytes"] > 0


def test_processes_that_a_command_starts_load_its_files_too(mine: Path, forks: Forks) -> None:
    with plugins.handed_on([mine]):
        found = forks.run(["-m", "stepwell", "plugins"])
    assert "my-double-negation" in found.stdout
    assert plugins.LOADED not in os.environ


def test_a_plugins_rewrites_operators_and_quantizers_go_by_name(
    toy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", toy]) == 0
    Path("aten.mlir").write_text(capsys.readouterr().out)
    assert main(["opt", "aten.mlir", "-p", "lower-to-toy,merge-scales"]) == 0
    assert capsys.readouterr().out.count("toy.scale") == 1
    assert main(["lower", toy, "-t", "toy", "--without", "merge-scales", "-o", "m.toy"]) == 0
    assert Path("m.toy").read_text().count('"scale"') == 2
    assert main(["lower", toy, "-t", "toy", "--quantize", "toy-halves", "-o", "m.toy"]) == 0
    assert "0.0999755859375" in Path("m.toy").read_text()  # A tenth as a half.


def test_a_program_lowered_to_a_plugins_target_runs_on_its_engine(toy: str) -> None:
    from stepwell.loaders.models import open_model

    model = open_model(toy)
    lowered = stepwell.lower(model.program, "toy")
    assert torch.equal(lowered.run(*model.inputs)[0], model.module(*model.inputs))
    assert lowered.emit() == lowered.artifact
    assert lowered.report.outside.total() == 0


def test_unloading_a_plugin_takes_everything_back(toy: str) -> None:
    plugins.registry()
    assert text.is_registered("toy")
    plugins.unload_plugin("toy")
    assert not text.is_registered("toy")
    with pytest.raises(stepwell.StepwellError, match="no target 'toy'"):
        stepwell.lower(stepwell.parse("func.func @f() { func.return }"), "toy")
    plugins._load_entry_point(next(iter(plugins.entry_points(group=plugins.GROUP))))
    assert text.is_registered("toy")


def test_a_plugin_that_fails_is_named_and_left_out(
    fresh: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_plugin.py").write_text(
        "from xdsl.ir import Dialect\n"
        "def plugin(registry):\n"
        "    registry.dialect(Dialect('halfway', []))\n"
        "    raise RuntimeError('no such device')\n"
    )
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[stepwell.plugins.plugins]\nbroken = broken_plugin:plugin\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    relu = "func.func @f(%x: tensor<2xf32>) { func.return }"
    with pytest.raises(stepwell.StepwellError, match="left out, as they fail to load: broken"):
        stepwell.lower(stepwell.parse(relu), "nowhere")
    assert "plug-in 'broken' (broken 1.0) is left out: RuntimeError: no such device" in caplog.text
    assert "broken_plugin.py:4" in caplog.text
    assert not text.is_registered("halfway")
    assert main(["plugins"]) == 1
    assert "no such device" in capsys.readouterr().out


def test_a_file_brings_its_rewrites_and_keyword_inputs(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{mine}:make"
    arguments = ["lower", spec, "--load", str(mine)]
    assert main([*arguments, "--before", "normalize=my-double-negation{limit=4}"]) == 0
    assert "my-double-negation" in capsys.readouterr().out  # Steps that did something are listed.
    edits = ["--without", "absorb/merge-linears,fuse-clamp", "--replace", "widen-gelu=remove-copy"]
    assert main([*arguments, *edits, "--after", "absorb/split-linear=my-double-negation"]) == 0
    given = ["check", f"{mine}:by_keyword", "--load", str(mine), "--no-artifact"]
    assert main([*given, "--pipeline", "my-double-negation,normalize"]) == 0
    assert "✓ import" in capsys.readouterr().out


def test_a_pipeline_is_read_from_a_file_and_by_name(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.steps").write_text(
        "my-double-negation  # first\ntogether(remove-copy,merge-views)\n"
    )
    arguments = ["explain", f"{mine}:make", "--load", str(mine)]
    assert main([*arguments, "--pipeline", "mine.steps"]) == 0
    assert "my-double-negation" in capsys.readouterr().out
    assert main([*arguments, "-t", "xnnpack-published"]) == 0
    assert main([*arguments, "--pipeline", "my-double-negatoin"]) == 1
    assert "did you mean 'my-double-negation'?" in capsys.readouterr().err


def test_a_registered_pipeline_is_lowered_to_by_name() -> None:
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),))
    lowered = stepwell.lower(exported, "xnnpack-published")
    assert [step.name for step in lowered.report.steps][:2] == ["take-apart", "remove-noop-expands"]
    own = stepwell.lower(exported, "xnnpack", lambda own: own.without("absorb"))
    assert "absorb" not in [step.name for step in own.report.steps]


def test_a_file_that_changed_is_loaded_anew_and_a_wrong_one_is_an_error(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "--load", str(mine)]) == 0
    assert main(["plugins", "--load", str(mine)]) == 0
    mine.write_text(MINE.replace("my-double-negation", "my-other-name"))
    capsys.readouterr()
    assert main(["plugins", "--load", str(mine)]) == 0
    shown = capsys.readouterr().out
    assert "my-other-name" in shown and "my-double-negation" not in shown
    mine.write_text("import torch\nfrom torch import nothing_of_this_name\n")
    assert main(["opt", "--load", str(mine), "-p", "cse", "x.mlir"]) == 1
    err = capsys.readouterr().err
    assert "mine.py:2" in err and "nothing_of_this_name" in err
    assert not any(plugin.brings for name, plugin in REGISTRY.plugins.items() if str(mine) in name)
