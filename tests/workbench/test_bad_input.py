"""Whatever a command is given: an error in words, exit status 1 or 2, no trace, no file."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from eager import lower

import stepwell
from stepwell.cli.main import main
from stepwell.cli.terminal.quantization import quantizer_of
from stepwell.loaders.factories import parts_of

MODELS = """
import torch

def three(): return 3
def boom(): raise ValueError("boom")
def not_a_module(): return 3, (torch.ones(2),)
number = 3
def leaves(): raise SystemExit(0)

def leaves_while_exported():
    class Model(torch.nn.Module):
        def forward(self, x): raise SystemExit(0)
    return Model(), (torch.ones(3),)

def branches_on_data():
    class Model(torch.nn.Module):
        def forward(self, x): return x if x.sum() > 0 else -x
    return Model(), (torch.ones(3),)

def wide(): return torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3, dtype=torch.float64),)
def trains(): return torch.nn.BatchNorm1d(3), (torch.ones(2, 3),)
def drops(): return torch.nn.Dropout(), (torch.ones(2, 3),)
def none(): return []
def numbers(): return [3]
bare = torch.nn.Linear(3, 3)
def good(): return torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),)
"""
MODEL_ERRORS = {
    "nothing.pt2": "the file nothing.pt2 does not exist",
    "nothing.mlir": "the file nothing.mlir does not exist",
    "nothing.py:f": "the file nothing.py does not exist",
    "models.py": "name a function: models.py:three",
    "models.py:nothing": "no callable",
    "models.py:number": "no callable",
    "models.py:three": "return (module",
    "models.py:boom": "boom() fails: ValueError: boom\n  at models.py:5",
    "models.py:not_a_module": "instead of torch.nn.Module",
    "models.py:branches_on_data": "torch.export.export fails on branches_on_data",
    "models.py:bare": "bare in models.py is a module without example inputs",
    "models.py:wide": "the operands are f64 and f32, of which PyTorch computes no product",
    "models.py:trains": "trains is in training mode: batch_norm",
    "models.py:drops": "drops is in training mode: dropout",
    "models.py:leaves": "leaves() fails: SystemExit: 0",
    "models.py:leaves_while_exported": "torch.export.export fails on leaves_while_exported",
    "leaves.py:f": "cannot be imported: SystemExit",
    "missing.py:f": "cannot be imported: ModuleNotFoundError",
    "syntax.py:f": "cannot be imported: SyntaxError",
    "garbage.pt2": "garbage.pt2",
    "garbage.mlir": "error",
    "folder.pt2": "folder.pt2",
    "folder": "error",
}
OTHER = {
    "lower models.py:good -t nothing": "no target",
    "lower models.py:good -t tosa-9.9": "TOSA version",
    "lower models.py:good -t cortex-m99": "cortex-m99",
    "explain models.py:good -t nothing": "no target",
    "check models.py:good -t nothing": "no target",
    "show models.py:good -t tosa-9.9": "TOSA version",
    "show models.py:good -t cortex-m99": "cortex-m99",
    "lower models.py:good -o missing/m.pte": "cannot write",
    "lower models.py:good -o folder": "cannot write",
    "lower models.py:good -o m.tosa": "the target xnnpack writes .pte files, not .tosa",
    "lower models.py:good -o m.onnx": "the target xnnpack writes .pte files, not .onnx",
    "lower models.py:good -o m.h": "the target xnnpack writes .pte files, not .h",
    "lower models.py:good -t c -o m.pte": "write a folder of C, not a .pte file",
    "lower models.py:good --data models.py:none": "none is named\n  help: --quantize int8",
    "lower models.py:good --quantize int8 --data models.py:none": "returned no inputs",
    "lower models.py:good --quantize int8 --data models.py:numbers": "inputs of type int",
    "lower models.py:good --quantize int8 --data models.py": "models.py is no calibration data",
    "lower models.py:good --quantize int8 --data garbage.npz": "cannot read garbage.npz",
    "lower models.py:good --quantize int8 --data damaged.npz": "is no .npz of arrays",
    "lower models.py:good --quantize nothing": "there is no quantizer 'nothing'",
    "lower models.py:good --emit-ir missing/m.mlir": "cannot write",
    "lower models.py:good --etrecord missing/m": "cannot write",
    "lower models.py:good -t tosa-1.0+fp --etrecord m": "has no etrecord artifact",
    "show cut.pte": "cut",
    "show garbage.pte": "too few",
    "show garbage.tosa": "where the format has",
    "show folder.pte": "folder.pte",
    "show nothing.pte": "cannot read",
    "show models.py:good --html missing/m.html": "cannot write",
    "show models.py:good --dot missing/m.dot": "cannot write",
    "show models.py:good --dot m.dot --method nothing": "nothing",
    "show models.py:good --profile": "add --html and --target",
    "show models.py:good --difference": "add --html and --target",
    "show models.py:good --beside m.pte": "require --html",
    "show models.py:good --html m.html --overlay garbage.mlir": "is not valid JSON",
    "show models.py:good -t tosa-1.0+fp --html m.html --profile": "has no etrecord artifact",
    "explain models.py:good --json missing/m.json": "cannot write",
    "run nothing.pte": "nothing.pte",
    "run garbage.pte": "too few",
    "run cut.pte": "cut",
    "run folder.pte": "folder.pte",
    "run m.pte --method nothing": "no method 'nothing'",
    "run m.pte --profile --method nothing": "no method 'nothing'",
    "run m.pte --profile --repeat 0": "nothing is measured",
    "run m.pte --profile --etrecord nothing": "the file nothing does not exist",
    "run m.pte --profile --etrecord m.pte": "is not an ETRecord",
    "opt nothing.mlir": "nothing.mlir",
    "opt garbage.mlir": "garbage.mlir",
    "opt garbage.mlir -p nothing": "nothing",
    "opt m.pte": "opt reads .mlir text",
    "demo --quick -o missing/m.pte": "cannot write",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bad")
    (made / "models.py").write_text(MODELS)
    (made / "missing.py").write_text("import a_module_that_is_not_there\n")
    (made / "syntax.py").write_text("def f(:\n")
    (made / "leaves.py").write_text("import sys\n\nsys.exit(0)\n")
    for suffix in ("pt2", "mlir", "pte", "tosa"):
        (made / f"garbage.{suffix}").write_text("garbage\n")
    (made / "damaged.npz").write_bytes(b"PK\x03\x04damaged")
    for name in ("folder", "folder.pt2", "folder.pte"):
        (made / name).mkdir()
    model = torch.nn.Linear(3, 3).eval()
    data = lower(model, torch.ones(2, 3)).to_pte()
    (made / "m.pte").write_bytes(data)
    (made / "cut.pte").write_bytes(data[: len(data) // 2])
    return made


@pytest.fixture
def refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """What a command line says when it is refused; it writes nothing."""
    monkeypatch.chdir(folder)

    def files() -> list[Path]:
        found = folder.rglob("*")
        return sorted(path for path in found if "__pycache__" not in path.parts)

    def run(line: str) -> str:
        before = files()
        try:
            status = main(line.split())
        except SystemExit as stop:  # argparse
            status = stop.code
        assert status in (1, 2)
        assert files() == before
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert status == 2 or "\nerror: " in f"\n{said.err}", said.err
        return said.err

    return run


@pytest.mark.parametrize("model", MODEL_ERRORS)
@pytest.mark.parametrize("command", ["lower", "show", "explain", "check"])
def test_a_model_that_does_not_open_is_an_error_in_words(
    model: str, command: str, refused: Callable[[str], str]
) -> None:
    assert MODEL_ERRORS[model] in refused(f"{command} {model}")


@pytest.mark.parametrize("command", OTHER)
def test_what_a_command_cannot_do_is_an_error_in_words(
    command: str, refused: Callable[[str], str]
) -> None:
    assert OTHER[command] in refused(command)


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp", "cortex-m55"])
def test_weights_without_data_are_named_before_a_program_is_lowered(target: str) -> None:
    model = torch.nn.Linear(3, 3).eval().to("meta")
    exported = torch.export.export(model, (torch.ones(2, 3, device="meta"),))
    program = stepwell.from_exported_program(exported)
    with pytest.raises(stepwell.StepwellError, match=r"no data \(device meta\): weight, bias"):
        stepwell.lower(program, target)
    assert "weight" in str(program)


ROWS = torch.export.Dim("rows", min=1, max=8)
NET, X, BY_NAME = torch.nn.Linear(3, 3), torch.ones(2, 3), {"scale": torch.ones(())}
SHAPES = {"x": {0: ROWS}, "scale": None}


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        ((NET, (X,)), ((X,), {}, None)),
        ((NET, BY_NAME), ((), BY_NAME, None)),
        ((NET, (X,), ({0: ROWS},)), ((X,), {}, ({0: ROWS},))),
        ((NET, (X,), {"x": {0: ROWS}}), ((X,), {}, {"x": {0: ROWS}})),
        ((NET, (X,), BY_NAME), ((X,), BY_NAME, None)),
        ((NET, (X,), BY_NAME, SHAPES), ((X,), BY_NAME, SHAPES)),
        ((NET, (X,), None, SHAPES), ((X,), {}, SHAPES)),
        ({"module": NET, "kwargs": BY_NAME}, ((), BY_NAME, None)),
    ],
)
def test_a_factory_returns_what_export_is_given(made: object, parts: tuple[object, ...]) -> None:
    assert parts_of("model", made) == (NET, *parts)


def test_a_file_without_a_callable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", "m.py:f", "--data", "half.pte"]) == 1
    assert "'half.pte' names no callable" in capsys.readouterr().err


def test_int8_of_a_mixture_is_the_targets_own() -> None:
    for text, name in (
        ("int8", "int8-cortex-m"),
        ("int8,a=16", "int8-cortex-m,a=16"),
        ("4w", "4w"),
    ):
        assert quantizer_of(Namespace(quantize=text, target="cortex-m55")) == name
