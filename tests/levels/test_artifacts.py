"""An artifact is a program: read and written again it is the same file."""

from pathlib import Path

import pytest
import torch
from eager import exported
from example_models import program

import stepwell
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError, describe_location, location_of
from stepwell.ir.syntax.text import structurally_equal
from stepwell.loaders.artifacts import random_inputs

DATA = Path(__file__).resolve().parents[1] / "xnnpack" / "data"
OURS = (
    ("bert:bert", "xnnpack"),
    ("llama:llama_block", "xnnpack"),
    ("quantized:cnn_per_tensor", "xnnpack"),
    ("quantized:mlp_dynamic", "xnnpack"),
    ("tiny:ds_cnn", "xnnpack"),
    ("quantized:cnn_per_tensor", "cortex-m55"),
    ("quantized:cnn_per_tensor", "tosa-1.0+int"),
    ("llama:llama_block", "tosa-1.0+fp"),
    ("resnet:resnet8", "tosa-1.1+fp"),
    ("control_flow:cond_model", "xnnpack"),
    ("control_flow:while_loop_model", "xnnpack"),
    ("tiny:mlp", "cortex-m55"),
    ("tiny:mlp", "tosa-1.0+fp+cpu"),
    ("quantized:cnn_per_tensor", "tosa-1.0+int+cpu"),
    ("quantized:cnn_per_tensor", "ethos-u55-128"),
)


@pytest.mark.parametrize(("name", "target"), OURS)
def test_our_artifacts_come_out_as_they_were(name: str, target: str) -> None:
    data = stepwell.emit(program(name), target)
    assert stepwell.emit(stepwell.load(data), target) == data


@pytest.mark.parametrize("name", ["stock_float", "stock_static_int8", "stock_dynamic_int8"])
def test_a_file_of_the_stock_flow_runs_alike_when_it_is_written_again(name: str) -> None:
    """Bytes differ: memory plan, names and debug handles are ours. The program is the same."""
    data = (DATA / f"{name}.pte").read_bytes()
    again = stepwell.emit(stepwell.read_pte(data), "xnnpack")
    assert structurally_equal(stepwell.read_pte(again).module, stepwell.read_pte(data).module) or (
        stepwell.emit(stepwell.read_pte(again), "xnnpack") == again
    )
    inputs = random_inputs(data, "forward", 0)
    wanted = stepwell.run_pte(data, inputs)
    for got, value in zip(stepwell.run_pte(again, inputs), wanted, strict=True):
        assert torch.equal(got, value)


def test_an_edited_pte_computes_what_was_edited() -> None:
    x = torch.randn(2, 4)
    source = stepwell.from_exported_program(exported(lambda x: torch.tanh(x) + 1, x))
    read = stepwell.read_pte(stepwell.emit(source, "xnnpack"))
    edited = stepwell.parse(str(read).replace("xnnpack.tanh", "xnnpack.abs"), weights=read.weights)
    (got,) = stepwell.lower(edited, "xnnpack").run(x)
    assert torch.equal(got, x.abs() + 1)


@pytest.mark.parametrize(
    "text",
    [
        "model.py:41, node conv_transpose, in blocks.0",
        "cell [3], line 7, node linear",
        "node p_0_bias",
        "in blocks.1.mlp",
        "a/b.py:1",
    ],
)
def test_a_location_that_was_described_is_read_from_its_description(text: str) -> None:
    assert describe_location(location_of(text)) == text


def test_a_bundled_program_is_read_and_written_with_its_cases(tmp_path: Path) -> None:
    source, x = program("tiny:mlp"), torch.randn(4, 64)
    lowered = stepwell.lower(source, "xnnpack")
    bundle = lowered.to_bpte({"forward": [(x,)]})
    place, again = tmp_path / "mlp.bpte", tmp_path / "again.bpte"
    place.write_bytes(bundle)
    assert main(["emit", str(place), "-t", "xnnpack", "-o", str(again)]) == 0
    assert again.read_bytes() == bundle

    from executorch.extension.pybindings import portable_lib

    held = portable_lib._load_bundled_program_from_buffer(bundle)
    module = portable_lib._load_for_executorch_from_bundled_program(held)
    (got,) = module.run_method("forward", [x])
    torch.testing.assert_close(got, source.run(x)[0], atol=1e-5, rtol=1e-5)

    read = stepwell.load(place)
    edited = stepwell.parse(
        str(read).replace("output_min=0.0", "output_min=-1.0"), weights=read.weights
    )
    made = stepwell.lower(edited, "xnnpack").to_bpte(place)
    assert made != bundle and stepwell.load(made).run(x)[0].equal(edited.run(x)[0])
    with pytest.raises(StepwellError, match=r"no method 'other'"):
        lowered.to_bpte({"other": []})


def test_tosa_delegates_of_open_sizes_are_read_at_their_largest() -> None:
    lowered = stepwell.lower(program("dynamic:dynamic_length"), "tosa-1.0+fp+cpu")
    data = lowered.emit()
    with pytest.raises(StepwellError, match=r"does not state which axes[\s\S]*largest=True"):
        stepwell.load(data)
    held = stepwell.read_pte(data, largest=True)
    again = stepwell.load(stepwell.emit(held, "tosa-1.0+fp+cpu"))
    x = torch.randn(1, 128, 32)
    assert torch.equal(again.run(x)[0], lowered.program.run(x)[0])
