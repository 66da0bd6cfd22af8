"""Plug-ins: a package that is installed, a file that is loaded, and one that fails."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import Forks, forget_plugins

import stepwell
from stepwell.ir.syntax import text
from stepwell.plugins import plugins
from stepwell.plugins.registry import REGISTRY

from .commands import Commands

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
def fresh() -> Iterator[None]:
    """A process that has looked for no plug-in; what a test loads is taken back."""
    forget_plugins()
    yield
    forget_plugins()


@pytest.fixture
def toy(site: Path, fresh: None, command: Commands, monkeypatch: pytest.MonkeyPatch) -> str:
    """The template is installed; the spec of a model that its machine can run."""
    monkeypatch.syspath_prepend(str(site))
    command.write("toy_model.py", TOY_MODEL)
    return "toy_model.py:make"


@pytest.fixture
def mine(fresh: None, command: Commands) -> Path:
    return command.folder / command.write("mine.py", MINE)


def test_every_command_knows_an_installed_plugin(toy: str, command: Commands) -> None:
    assert "targets: toy" in command("plugins").out
    said = command(f"lower {toy} -t toy -o m.toy --emit-ir m.mlir").out
    assert "merge-scales" in said
    assert "artifact (toy)" in command(f"check {toy} -t toy").out
    assert "toy.scale" in command(f"explain {toy} -t toy").out
    command(f"show {toy} -t toy --html page.html")
    assert "toy.scale" in command.read("page.html")
    assert "toy.scale" in command("show m.toy").out
    command("explain m.toy")
    assert "artifact (toy)" in command("check m.toy").out
    command("run m.mlir")  # Its constants lie beside it.
    assert "output 0: tensor" in command("run m.toy").out
    assert "toy.relu" in command("opt m.mlir").out


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
    toy: str, command: Commands, forks: Forks
) -> None:
    load = f"--load {command.write('broken.py', BROKEN)}"
    said = command(f"lower {toy} -t toy --after merge-scales=broken-relu {load}", 1)
    assert "no such instruction" in said.err
    command(f"opt repro.mlir {load}", 1)
    # A process of its own: the others know the dialect by now.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    given = ["-m", "stepwell", "reduce", "repro.mlir", *load.split()]
    ran = forks.run(given, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr
    small = command.read("repro.small.mlir")
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
    toy: str, command: Commands
) -> None:
    command.write("aten.mlir", command(f"show {toy}").out)
    assert command("opt aten.mlir -p lower-to-toy,merge-scales").out.count("toy.scale") == 1
    command(f"lower {toy} -t toy --without merge-scales -o m.toy")
    assert command.read("m.toy").count('"scale"') == 2
    command(f"lower {toy} -t toy --quantize toy-halves -o m.toy")
    assert "0.0999755859375" in command.read("m.toy")  # A tenth as a half.


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
    command: Commands,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    command.write(
        "broken_plugin.py",
        "from xdsl.ir import Dialect\n"
        "def plugin(registry):\n"
        "    registry.dialect(Dialect('halfway', []))\n"
        "    raise RuntimeError('no such device')\n",
    )
    info = command.folder / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[stepwell.plugins.plugins]\nbroken = broken_plugin:plugin\n"
    )
    monkeypatch.syspath_prepend(str(command.folder))
    relu = "func.func @f(%x: tensor<2xf32>) { func.return }"
    with pytest.raises(stepwell.StepwellError, match="left out, as they fail to load: broken"):
        stepwell.lower(stepwell.parse(relu), "nowhere")
    assert "plug-in 'broken' (broken 1.0) is not loaded: RuntimeError: no such" in caplog.text
    assert "broken_plugin.py:4" in caplog.text
    assert not text.is_registered("halfway")
    assert "no such device" in command("plugins", 1).out


def test_a_file_brings_its_rewrites_and_keyword_inputs(mine: Path, command: Commands) -> None:
    line = f"lower {mine}:make --load {mine}"
    said = command(f"{line} --before normalize=my-double-negation{{limit=4}}").out
    assert "my-double-negation" in said  # Steps that did something are listed.
    edits = "--without absorb/merge-linears,fuse-clamp --replace widen-gelu=remove-copy"
    command(f"{line} {edits} --after absorb/split-linear=my-double-negation")
    given = f"check {mine}:by_keyword --load {mine} --no-artifact"
    assert "✓ import" in command(f"{given} --pipeline my-double-negation,normalize").out


def test_a_pipeline_is_read_from_a_file_and_by_name(mine: Path, command: Commands) -> None:
    command.write("mine.steps", "my-double-negation  # first\ntogether(remove-copy,merge-views)\n")
    line = f"explain {mine}:make --load {mine}"
    assert "my-double-negation" in command(f"{line} --pipeline mine.steps").out
    command(f"{line} -t xnnpack-published")
    said = command(f"{line} --pipeline my-double-negatoin", 1)
    assert "did you mean 'my-double-negation'?" in said.err


def test_a_registered_pipeline_is_lowered_to_by_name() -> None:
    exported = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),))
    lowered = stepwell.lower(exported, "xnnpack-published")
    assert [step.name for step in lowered.report.steps][:2] == ["take-apart", "remove-noop-expands"]
    own = stepwell.lower(exported, "xnnpack", lambda own: own.without("absorb"))
    assert "absorb" not in [step.name for step in own.report.steps]


def test_a_file_that_changed_is_loaded_anew_and_a_wrong_one_is_an_error(
    mine: Path, command: Commands
) -> None:
    command(f"plugins --load {mine}")
    command(f"plugins --load {mine}")
    mine.write_text(MINE.replace("my-double-negation", "my-other-name"))
    shown = command(f"plugins --load {mine}").out
    assert "my-other-name" in shown and "my-double-negation" not in shown
    mine.write_text("import torch\nfrom torch import nothing_of_this_name\n")
    err = command(f"opt --load {mine} -p cse x.mlir", 1).err
    assert "mine.py:2" in err and "nothing_of_this_name" in err
    assert not any(plugin.brings for name, plugin in REGISTRY.plugins.items() if str(mine) in name)
