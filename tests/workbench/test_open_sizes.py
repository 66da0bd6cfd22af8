"""`dynamic_shapes` opens what a model lets be open, and names the line that pins the rest."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager
from torch import Tensor, nn

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.loaders.dynamic_shapes import OpenAxis

from .commands import Commands


class Places(nn.Module):
    """As many places as the example has."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 12, 8))
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return y + self.places


class Counted(nn.Module):
    """A loop over a size."""

    def forward(self, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[0], x.shape[2])
        for at in range(x.shape[1]):
            total = total + x[:, at].sin()
        return total


def halved(x: Tensor, down: nn.Module, again: nn.Module) -> Tensor:
    """An image that is halved twice and added to what it was."""
    y = down(x)
    return y + nn.functional.interpolate(again(y), scale_factor=2.0)


class Pairs(nn.Module):
    """Two inputs that are as long, in a structure."""

    def forward(self, states: list[Tensor], *, other: dict[str, Tensor]) -> Tensor:
        return (states[0] * other["a"]).sum(1)


class Eighths(nn.Module):
    """As many numbers as a trace has once, and no more places than there are."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 20, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places[:, : x.shape[1]]
        return nn.functional.adaptive_max_pool1d(x.mT, x.shape[1] // 8)


class OfTheTrace(nn.Module):
    """Something else while it is traced."""

    def forward(self, x: Tensor) -> Tensor:
        count = 10 if torch.compiler.is_exporting() else x.shape[1]
        return x.sum(1) / count


def of(found: Any) -> dict[tuple[str, int], OpenAxis]:
    return {(axis.input, axis.axis): axis for axis in found.axes}


def test_a_program_opens_what_can_be_and_runs_at_sizes_nobody_tried() -> None:
    model = Places().eval()
    found = stepwell.dynamic_shapes(model, (torch.randn(1, 12, 8),))
    axes = of(found)
    assert (axes["x", 0].least, axes["x", 0].most) == (1, 8)  # The example had one.
    assert axes["x", 1].size is None
    assert axes["x", 2].size is None
    lowered = stepwell.lower(found.program, "xnnpack")
    assert lowered.report.delegates == 1
    for rows in (1, 5, 8):
        assert_as_eager(lowered, model, torch.randn(rows, 12, 8), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "axis", "code"),
    [(Places(), 1, "return y + self.places"), (Counted(), 1, "for at in range(x.shape[1]):")],
)
def test_the_line_that_pins_a_size_is_named(model: nn.Module, axis: int, code: str) -> None:
    line = of(stepwell.dynamic_shapes(model.eval(), (torch.randn(2, 12, 8),)))["x", axis].line
    assert line is not None and line.code == code
    lines, first = inspect.getsourcelines(type(model))
    assert Path(line.file) == Path(__file__)
    assert code in lines[line.number - first]


def test_a_size_that_is_halved_is_open_in_steps() -> None:
    down, again = (nn.Conv2d(n, 4, 3, stride=2, padding=1) for n in (3, 4))
    model = Function(halved, down, again).eval()
    found = stepwell.dynamic_shapes(model, (torch.randn(1, 3, 16, 16),), dynamic="image")
    assert {axis.step for axis in found.axes} == {4}
    assert [axis.most for axis in found.axes] == [32, 32]


def test_sizes_that_are_one_size_are_one_symbol_and_limits_are_the_callers() -> None:
    given = ([torch.randn(6, 4)],), {"other": {"a": torch.randn(6, 4)}}
    found = stepwell.dynamic_shapes(Pairs().eval(), *given, dynamic={"batch": 100})
    axes = of(found)
    assert axes["states[0]", 0].size == axes["other['a']", 0].size is not None
    assert axes["states[0]", 0].most == 100
    assert ("states[0]", 1) not in axes


def test_a_size_ends_where_the_trace_or_the_model_does() -> None:
    model = Eighths().eval()
    for rows, ends in ((10, (8, 15)), (18, (16, 20))):
        found = stepwell.dynamic_shapes(model, (torch.randn(2, rows, 4),), dynamic="sequence")
        axis = of(found)["x", 1]
        assert (axis.least, axis.most) == ends
        lowered = stepwell.lower(found.program, "xnnpack")
        for size in ends:
            assert_as_eager(lowered, model, torch.randn(2, size, 4))
        with pytest.raises(stepwell.StepwellError):
            lowered.run(torch.randn(2, ends[1] + 1, 4))


def test_a_program_that_says_something_else_at_another_size_is_not_left_open() -> None:
    found = stepwell.dynamic_shapes(OfTheTrace().eval(), (torch.randn(3, 10, 4),))
    axes = of(found)
    assert axes["x", 1].size is None and "the exported program and the model differ" in str(
        axes["x", 1].pinned
    )
    assert axes["x", 0].size is not None


@pytest.mark.parametrize(
    ("dynamic", "said"),
    [
        ("bach", "did you mean 'batch'"),
        ({"batch": 2}, "has size 6 in the example, above the batch limit 2"),
        ({"image": 0}, "must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_said(dynamic: Any, said: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=said):
        stepwell.dynamic_shapes(nn.Identity(), (torch.randn(6, 4),), dynamic=dynamic)


MODELS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.reshape(-1, 12).relu()

class Fixed(torch.nn.Module):
    def forward(self, x):
        return x.reshape(2, 6).relu()

def rows():
    return Model().eval(), (torch.randn(1, 4, 3),)

def fixed():
    return Fixed().eval(), (torch.randn(1, 4, 3),)
"""


def test_the_command_line_opens_sizes_and_names_what_pins_them(command: Commands) -> None:
    command.write("model.py", MODELS)
    assert "1 to 9" in command("lower model.py:rows --dynamic batch=9 -o rows.pte").err
    given = torch.randn(7, 4, 3)
    found = stepwell.run_pte(Path("rows.pte"), [given])[0]
    torch.testing.assert_close(found, given.reshape(-1, 12).relu())
    said = command("lower model.py:fixed --dynamic batch -o rows.pte", 1).err
    assert "axis 0 is not dynamic" in said and "model.py:10: return x.reshape(2, 6).relu()" in said


class Frames(nn.Module):
    """A spectrogram: its bins are fixed, its frames may be any."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(80, 4)

    def forward(self, mel: Tensor, offset: Tensor) -> Tensor:
        return self.linear(mel.transpose(1, 2)) + offset


@pytest.mark.parametrize(
    "dynamic", ["mel:2", "mel:-1", {"mel:2": 160}, {"mel": {2: 160}}, {"mel": {-1: None}}], ids=str
)
def test_an_axis_is_named_by_its_input(dynamic: Any) -> None:
    inputs = (torch.randn(1, 80, 100), torch.randn(1))
    found = stepwell.dynamic_shapes(Frames().eval(), inputs, dynamic=dynamic)
    most = 160 if "160" in str(dynamic) else 200
    assert [(a.input, a.axis, a.most) for a in found.axes] == [("mel", 2, most)]


@pytest.mark.parametrize(
    ("dynamic", "told"),
    [
        ("mle:2", "did you mean 'mel'?"),
        ("mel:3", "of rank 3 has no axis '3'"),
        ("mel:x", "has no axis 'x'"),
        ({"mel": {2: 50}}, "mel axis 2 has size 100 in the example, above the mel:2 limit 50"),
    ],
)
def test_a_name_of_no_axis_is_an_error(dynamic: Any, told: str) -> None:
    inputs = (torch.randn(1, 80, 100), torch.randn(1))
    with pytest.raises(stepwell.StepwellError, match=re.escape(told)):
        stepwell.dynamic_shapes(Frames().eval(), inputs, dynamic=dynamic)


def test_the_command_line_names_an_axis(tmp_path: Path, command: Commands) -> None:
    command.write(
        "m.py",
        "import torch\n"
        "class Frames(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(80, 4)\n"
        "    def forward(self, mel):\n"
        "        return self.linear(mel.transpose(1, 2))\n"
        "def make(): return Frames().eval(), (torch.randn(1, 80, 100),)\n",
    )
    command("lower m.py:make --dynamic mel:2=1600 -o m.pte")
    session = PteSession.load((tmp_path / "m.pte").read_bytes())
    for frames in (7, 1600):
        assert [tuple(y.shape) for y in session.run(torch.ones(1, 80, frames))] == [(1, frames, 4)]
    assert (
        "mel along axis 1 is not dynamic"
        in command("lower m.py:make --dynamic mel:1 -o n.pte", 1).err
    )
