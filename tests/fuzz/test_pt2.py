"""A `.pt2` is opened without executing anything in it; what would need trust is refused by name."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import exported
from forking import Forks

import stepwell
from stepwell.translate.importer.pt2 import is_arithmetic, load_pt2


class Model(torch.nn.Module):
    """A linear layer over a dynamic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x)).reshape(x.shape[0] * 3)


INPUTS = (torch.randn(5, 4),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "m.pt2"
    shapes = ({0: torch.export.Dim("rows", min=2, max=9)},)
    torch.export.save(torch.export.export(Model(), INPUTS, dynamic_shapes=shapes), place)
    return place


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    out = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(entry.filename, old.read(entry)))
    return out


class Bomb:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def test_an_untrusted_file_gives_the_same_program(path: Path) -> None:
    ours = stepwell.from_exported_program(load_pt2(path))
    theirs = stepwell.from_exported_program(torch.export.load(path))
    assert str(ours) == str(theirs)
    assert torch.equal(ours.run(*INPUTS)[0], theirs.run(*INPUTS)[0])


def test_sample_inputs_are_not_unpickled(path: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    bomb = pickle.dumps(Bomb(mark))
    bad = rewritten(path, lambda n, data: bomb if "sample_inputs" in n else data)
    load_pt2(bad)
    assert not mark.exists()


def test_pickled_weights_are_refused(path: Path) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(b'"use_pickle": false', b'"use_pickle": true')

    with pytest.raises(stepwell.StepwellError, match="pickle"):
        load_pt2(rewritten(path, change))


def test_an_expression_that_is_code_is_refused_and_not_evaluated(
    path: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    code = f"__import__('pathlib').Path('{mark}').touch()"

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith(".json") or b"expr_str" not in data:
            return data
        text = json.loads(data)

        def plant(value: Any) -> None:
            if isinstance(value, dict):
                if "expr_str" in value:
                    value["expr_str"] = code
                for inner in value.values():
                    plant(inner)
            elif isinstance(value, list):
                for inner in value:
                    plant(inner)

        plant(text)
        return json.dumps(text).encode()

    with pytest.raises(stepwell.StepwellError, match="no arithmetic"):
        load_pt2(rewritten(path, change))
    assert not mark.exists()


def test_a_target_that_is_no_operator_is_refused(path: Path) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(b"torch.ops.aten.relu.default", b"torch.hub.load")

    with pytest.raises(stepwell.StepwellError, match="no operator"):
        load_pt2(rewritten(path, change))


@pytest.mark.parametrize(
    "good",
    [
        "s77",
        "3*s77 + 1",
        "Max(1, s0)",
        "s0//2",
        "Mod(s0, 2) == 0",
        "Mul(Integer(3), Symbol('s77', positive=True, integer=True))",
    ],
)
def test_symbolic_arithmetic_is_let_through(good: str) -> None:
    assert is_arithmetic(good)


@pytest.mark.parametrize(
    "bad",
    [
        "__import__('os')",
        "s0.__class__",
        "(1).real",
        "lambda: 1",
        "'a b'",
        "eval(s0)",
        "[s0]",
        "Symbol('x').func",
        "lambdify(s0)",
        "sympify('s0')",
        "Symbol(__import__)",
        "9**9**9**9",
    ],
)
def test_anything_else_is_not(bad: str) -> None:
    assert not is_arithmetic(bad)


def test_a_quantized_program_opens_in_a_process_that_has_quantized_nothing(
    tmp_path: Path, forks: Forks
) -> None:
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers the operators

    def cast(x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        stored = ops.quantize_per_tensor(x, 0.5, 1, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(stored, 0.5, 1, -128, 127, torch.int8)

    torch.export.save(exported(cast, torch.randn(3)), tmp_path / "q.pt2")
    file = str(tmp_path / "q.pt2")
    code = f"from stepwell.translate.importer.pt2 import load_pt2; load_pt2({file!r})"
    done = forks.run(["-c", code], with_torch_alone=True)
    assert done.returncode == 0, done.stderr
