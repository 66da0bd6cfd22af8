"""What is public is short: any file is loaded, models are quantized, what is written is read."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import Forks
from torch import nn

import stepwell

from .commands import Commands
from .versions import channels_last


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval(), torch.randn(2, 4)
    exported = torch.export.export(model, (x,))
    torch.export.save(exported, folder / "m.pt2")
    lowered = stepwell.lower(exported, "xnnpack")
    lowered.save(folder / "m.pte")
    stepwell.lower(exported, "tosa-1.0+fp").save(folder / "m.tosa")
    stepwell.from_exported_program(exported).save(folder / "m.mlir")
    return {"folder": folder, "x": x, "y": model(x)}


@pytest.mark.parametrize("kind", ["pt2", "pte", "tosa", "mlir"])
def test_a_file_of_any_kind_is_loaded_by_its_path(files: dict[str, Any], kind: str) -> None:
    program = stepwell.load(files["folder"] / f"m.{kind}")
    torch.testing.assert_close(program.run(files["x"])[0], files["y"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["pt2", "pte", "tosa"])
def test_bytes_and_open_files_are_loaded_by_what_they_begin_with(
    files: dict[str, Any], kind: str
) -> None:
    data = (files["folder"] / f"m.{kind}").read_bytes()
    for given in (data, io.BytesIO(data)):
        program = stepwell.load(given)
        torch.testing.assert_close(program.run(files["x"])[0], files["y"], atol=1e-5, rtol=1e-4)


def test_a_bundled_program_is_loaded(files: dict[str, Any], tmp_path: Path) -> None:
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import (
        serialize_from_bundled_program_to_flatbuffer,
    )

    case = MethodTestCase(inputs=[files["x"]], expected_outputs=[files["y"]])
    bundled = BundledProgram(
        executorch_program=None,
        method_test_suites=[MethodTestSuite("forward", [case])],
        pte_file_path=str(files["folder"] / "m.pte"),
    )
    (tmp_path / "m.bpte").write_bytes(serialize_from_bundled_program_to_flatbuffer(bundled))
    program = stepwell.load(tmp_path / "m.bpte")
    torch.testing.assert_close(program.run(files["x"])[0], files["y"], atol=1e-5, rtol=1e-4)


def test_what_is_no_program_is_refused_with_what_can_be_read() -> None:
    with pytest.raises(stepwell.StepwellError, match=r"no program(.|\n)*\.pte"):
        stepwell.load(bytes(range(255, 0, -1)))


@channels_last
def test_a_model_is_quantized_on_all_its_data() -> None:
    """The second input is ten times the first: its range decides on the scale."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    x = torch.rand(1, 3, 8, 8)
    quantized = stepwell.quantize(model, "int8-cortex-m", [x, (10 * x,)])
    assert isinstance(model[0], nn.Conv2d)
    lowered = stepwell.lower(torch.export.export(quantized, (x,)), "cortex-m55")
    assert not [name for name in lowered.report.outside if "aten.conv" in name]
    (y,) = lowered.run(10 * x)
    wanted = model(10 * x)
    assert (y - wanted).abs().max() < 0.05 * wanted.abs().max()


LINEAR, ROW = nn.Linear(4, 4), torch.randn(1, 4)


@pytest.mark.parametrize(
    ("model", "quantizer", "data", "said"),
    [
        (
            torch.export.export(LINEAR, (ROW,)), "int8-xnnpack", [ROW],
            "only a module can be quantized, not an object of type",
        ),
        (LINEAR, "int8-xnnpack", [], "no data to calibrate on"),
        (LINEAR, "int8-xnnpack", ROW, r"has type Tensor(.|\n)*a list of tensors"),
        (LINEAR, "int8-xnnpck", [ROW], "int8-xnnpack"),
    ],
    ids=["no module", "no data", "a tensor", "a misspelt quantizer"],
)  # fmt: skip
def test_quantizing_says_what_is_missing(model: Any, quantizer: str, data: Any, said: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=said):
        stepwell.quantize(model, quantizer, data)


def test_the_written_ir_is_read_again(files: dict[str, Any], command: Commands) -> None:
    command(f"lower {files['folder'] / 'm.pt2'} -o g.pte --emit-ir g.mlir")
    for name in ("show", "run", "explain"):
        command(f"{name} g.mlir")
    program = stepwell.load(Path("g.mlir"))
    torch.testing.assert_close(program.run(files["x"])[0], files["y"], atol=1e-5, rtol=1e-4)


@channels_last
def test_a_quantized_pt2_is_lowered_by_a_process_that_has_registered_nothing(
    tmp_path: Path, forks: Forks
) -> None:
    torch.manual_seed(0)
    x = torch.rand(1, 3, 8, 8)
    quantized = stepwell.quantize(nn.Sequential(nn.Conv2d(3, 4, 3)), "int8-cortex-m", [x])
    torch.export.save(torch.export.export(quantized, (x,)), tmp_path / "q.pt2")
    command = ["-m", "stepwell", "lower", "q.pt2", "-t", "cortex-m55", "-o", "q.pte"]
    ran = forks.run(command, cwd=tmp_path, with_torch_alone=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "q.pte").stat().st_size > 0
