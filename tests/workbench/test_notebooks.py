"""In a notebook: short results, dataframes, and lines of the cell that a model was typed into."""

import importlib.util
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import stepwell
from stepwell.ir.diagnostics import source_line

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 1500
"""Characters that a result may have as plain text."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.atan(torch.relu(self.layer(x)))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(2, 64)
    program = stepwell.from_exported_program(torch.export.export(model, (x,)))
    lowered = stepwell.lower(program, "xnnpack")
    return {
        "program": program,
        "lowered": lowered,
        "report": lowered.report,
        "pipeline": stepwell.PIPELINES["xnnpack"],
        "pipelines": stepwell.PIPELINES,
        "check": stepwell.check(program, "xnnpack", inputs=(x,)),
        "explanation": stepwell.explain(program, "xnnpack"),
        "accuracy": stepwell.mx_accuracy(model, [(x,)]),
        "profile": lowered.profile(x),
    }


NAMES = (*"program lowered report pipeline pipelines check explanation accuracy profile".split(),)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_renders_short_and_as_a_table(name: str, results: dict[str, Any]) -> None:
    held = results[name]
    shown = held._repr_html_()
    assert shown.count("<table") == shown.count("</table>") >= 1
    assert shown.count("<tr") == shown.count("</tr>") and len(shown) < 20_000
    if name not in ("profile", "accuracy"):  # Numbers of a handful of ops, as a dataclass has them.
        assert len(repr(held)) < LONGEST
    assert "tensor([" not in repr(held) + shown, "no result shows weights"


FRAMES = {
    "report": ("step", "applied"),
    "check": ("name", "samples", "ok"),
    "explanation": ("op", "node", "where", "why"),
    "accuracy": ("layer", "fp8e4m3", "mxint8"),
    "profile": ("event", "milliseconds"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_result_is_a_dataframe(name: str, results: dict[str, Any]) -> None:
    pytest.importorskip("pandas", reason="needs the extra: pip install 'stepwell[notebook]'")
    frame = results[name].to_frame()
    assert set(FRAMES[name]) <= set(frame.columns) and len(frame) > 0


@pytest.mark.parametrize("name", FRAMES)
def test_a_result_is_a_plot(name: str, results: dict[str, Any], tmp_path: Path) -> None:
    picture = results[name].plot()
    root = ElementTree.fromstring(picture._repr_svg_())
    bars = [one for one in root.iter() if one.tag.endswith("rect")]
    assert len(bars) > 1 and all(float(bar.get("width", "-1").rstrip("%")) >= 0 for bar in bars)
    picture.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text() == picture.svg


def test_a_dataframe_without_pandas_names_the_extra(
    results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(stepwell.StepwellError, match=r"pip install 'stepwell\[notebook\]'"):
        results["report"].to_frame()


def test_a_check_puts_no_tick_where_nothing_was_compared(results: dict[str, Any]) -> None:
    result = results["check"]
    for step in result.steps:
        compared = step.samples or step.applications
        assert step.mark == ("✓" if compared else "·")
    idle = next(step.name for step in result.steps if not step.applied and not step.note)
    assert idle not in str(result) and idle in result.text(verbose=True)


CELL = """
import torch
class Typed(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def line_of(filename: str) -> str | None:
    """The source line of an op whose module was typed into a cell of that name."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache[filename] = (len(CELL), None, CELL.splitlines(keepends=True), filename)
    exec(compile(CELL, filename, "exec"), namespace)
    exported = torch.export.export(namespace["Typed"](), (torch.randn(3),))
    program = stepwell.from_exported_program(exported)
    (line,) = [source_line(op.location) for op in program.method().body.walk() if "relu" in op.name]
    return line


def test_a_line_of_a_cell_says_which_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line_of("<ipython-input-3-0123456789ab>") == "cell [3], line 5"
    assert line_of("/tmp/marimo_1/__marimo__cell_Hbol_.py") == "cell [Hbol], line 5"
    kept = "/tmp/ipykernel_9/1234.py"
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={kept: 7}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert line_of(kept) == "cell [7], line 5"
    assert line_of("/tmp/else/model.py") == "model.py:5"


@pytest.mark.skipif(
    importlib.util.find_spec("marimo") is None or importlib.util.find_spec("pandas") is None,
    reason="needs the extra: pip install 'stepwell[notebook]'",
)
def test_the_notebook_of_the_tutorial_runs() -> None:
    path = ROOT / "examples/notebooks/first_look.py"
    spec = importlib.util.spec_from_file_location("first_look", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, definitions = module.app.run()
    assert definitions["result"].ok and definitions["difference"] < 1e-4
    assert any("aten.atan.default" in str(output) for output in outputs)
