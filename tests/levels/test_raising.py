"""A program at a target's level goes up to torch, and down to another target."""

import pytest
import torch
from eager import Function, exported
from example_models import program
from torch import nn
from torch.utils._pytree import tree_leaves

import stepwell
from stepwell.cli.terminal.sources import random_values
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.weights import WeightStore

WAYS = (
    ("resnet:resnet8", "xnnpack", "tosa-1.0+fp"),
    ("resnet:resnet8", "tosa-1.0+fp", "xnnpack"),
    ("tiny:mlp", "xnnpack", "xnnpack"),
    ("transformer:transformer_encoder_2layers", "tosa-1.0+fp", "xnnpack"),
)


@pytest.mark.parametrize(("name", "target", "other"), WAYS)
def test_an_artifact_goes_to_another_target_and_to_torch(
    name: str, target: str, other: str
) -> None:
    source = program(name)
    data = stepwell.emit(source, target)
    read = stepwell.read_tosa if target.startswith("tosa") else stepwell.read_pte
    held = read(data)
    up = held.raise_to("aten")
    up.verify()
    assert (up.level, held.level != "aten") == ("aten", True)
    inputs = random_values(source, "forward", 0)
    (wanted, *_) = source.run(*inputs)
    (in_torch,) = tree_leaves(up.to_exported_program().module()(*inputs))
    (lowered,) = stepwell.lower(up, other).program.run(*inputs)
    for got in (in_torch, lowered):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


def _by_groups() -> stepwell.Program:
    from quantized import by_groups

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    made = by_groups(layers.eval(), (torch.randn(4, 64),))
    return stepwell.from_exported_program(made)


QUANTIZED = {
    "per tensor": lambda: program("quantized:cnn_per_tensor"),
    "per channel": lambda: program("quantized:cnn_per_channel"),
    "at run time": lambda: program("quantized:mlp_dynamic"),
    "8da4w": _by_groups,
}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_nodes_go_up_between_casts_and_down_to_the_same_bytes(kind: str) -> None:
    source = QUANTIZED[kind]()
    lowered = stepwell.lower(source, "xnnpack")
    data = lowered.emit()
    up = stepwell.read_pte(data).raise_to("aten")
    up.verify()
    assert "quantized_decomposed.quantize_per_t" in str(up) and "quant.uniform" not in str(up)
    inputs = random_values(source, "forward", 0)
    (wanted, *_) = lowered.program.run(*inputs)
    (in_torch,) = tree_leaves(up.to_exported_program().module()(*inputs))
    apart = (in_torch - wanted).abs().max() / wanted.abs().max()
    assert apart < 0.05  # Steps of int8: a number in 20 of the largest is a few of them.
    assert stepwell.emit(up, "xnnpack") == data


def test_int8_of_xnnpack_goes_to_cmsis_nn_and_to_tosa_whole() -> None:
    source = program("quantized:cnn_per_channel")
    up = stepwell.read_pte(stepwell.emit(source, "xnnpack")).raise_to("aten")
    inputs = random_values(source, "forward", 0)
    (wanted,) = source.run(*inputs)
    for target in ("cortex-m55", "tosa-1.0+fp+int"):
        lowered = stepwell.lower(up, target)
        assert not lowered.report.outside
        (got,) = lowered.program.run(*inputs)
        assert (got - wanted).abs().max() / wanted.abs().max() < 0.05


def test_tosas_integers_go_up_with_units_of_their_own_and_down_to_the_same_bytes() -> None:
    """A flatbuffer keeps ratios of scales: an input of unit 1 says all others."""
    source = program("quantized:cnn_per_channel")
    direct = stepwell.lower(source, "tosa-1.0+int")
    data = direct.emit()
    up = stepwell.read_tosa(data).raise_to("aten")
    up.verify()
    assert "tosa." not in str(up) and "quantize_per_tensor" in str(up)
    assert stepwell.emit(up, "tosa-1.0+int") == data
    stored = torch.randint(-128, 128, (1, 3, 16, 16), dtype=torch.int8)
    (wanted,) = stepwell.read_tosa(data).run(stored)
    (in_torch,) = tree_leaves(up.to_exported_program("main").module()(stored))
    ways = {"torch": in_torch}
    for target in ("xnnpack", "cortex-m55"):
        lowered = stepwell.lower(up, target)
        assert not lowered.report.outside
        ways[target] = lowered.program.run(stored, method="main")[0]
    for way, got in ways.items():
        assert (got.int() - wanted.int()).abs().max() <= 3, way  # Steps, over five layers.


@pytest.mark.parametrize("name", ["cond_model", "while_loop_model"])
def test_branches_and_loops_go_up_and_down_to_the_same_bytes(name: str) -> None:
    source = program(f"control_flow:{name}")
    data = stepwell.emit(source, "xnnpack")
    up = stepwell.read_pte(data).raise_to("aten")
    inputs = random_values(source, "forward", 0)
    (wanted,) = source.run(*inputs)
    (in_torch,) = tree_leaves(up.to_exported_program().module()(*inputs))
    torch.testing.assert_close(in_torch, wanted, atol=1e-5, rtol=1e-5)
    assert stepwell.emit(up, "xnnpack") == data


def test_tosas_branches_go_up() -> None:
    source = program("control_flow:cond_model")
    up = stepwell.lower(source, "tosa-1.0+fp+controlflow").program.raise_to("aten")
    assert "control.cond" in str(up) and "tosa." not in str(up)
    inputs = random_values(source, "forward", 0)
    torch.testing.assert_close(up.run(*inputs)[0], source.run(*inputs)[0], atol=1e-5, rtol=1e-5)


def test_open_sizes_go_up() -> None:
    source = program("dynamic:dynamic_batch")
    up = stepwell.lower(source, "xnnpack").program.raise_to("aten")
    up.verify()
    for batch in (2, 3):
        x = torch.randn(batch, *random_values(source, "forward", 0)[0].shape[1:])
        (wanted,) = source.run(x)
        (got,) = tree_leaves(up.to_exported_program().module()(x))
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


def test_a_level_without_a_way_up_says_so() -> None:
    lowered = stepwell.lower(program("quantized:cnn_per_tensor"), "cortex-m55")
    with pytest.raises(StepwellError, match="ratios of scales only"):
        lowered.program.raise_to("aten")
    with pytest.raises(StepwellError, match="cannot be raised to level 'xnnpack'"):
        lowered.program.raise_to("xnnpack")


def halves(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """A convolution over an open length, whose channels are parted in two."""
    first, second = layer(x).chunk(2, dim=1)
    return torch.tanh(first) * second


def test_what_a_kernel_reads_as_it_lies_goes_up_in_the_order_that_the_file_declares() -> None:
    """Its parts are `as_strided` of rows, and a convolution of XNNPACK gives them otherwise."""
    net, x = Function(halves, nn.Conv1d(4, 6, 3)), torch.randn(1, 4, 32)
    source = exported(net, x, dynamic={2: torch.export.Dim("length", min=8, max=32)})
    data = stepwell.emit(stepwell.from_exported_program(source), "cortex-m55")
    held = stepwell.read_pte(data, largest=True)
    assert "as_strided" in str(held)
    ways = {"up": held, "down": stepwell.lower(held.raise_to("aten"), "xnnpack")}
    ways["again"] = stepwell.load(stepwell.emit(held, "cortex-m55"))
    for way, found in ways.items():
        torch.testing.assert_close(found.run(x)[0], net(x), msg=way)
    assert "as_strided" not in str(ways["down"].program)


def test_a_weight_that_is_read_twice_is_one_of_torchs() -> None:
    text = """func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = stepwell.weight <"w"> "constant" : tensor<3xf32>
      %y = aten.mul.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      %b = stepwell.weight <"w"> "constant" : tensor<3xf32>
      %z = aten.add.Tensor(%y, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      func.return %z : tensor<2x3xf32>
    }"""
    weights = WeightStore()
    w, x = torch.rand(3), torch.rand(2, 3)
    weights.add("w", w)
    up = stepwell.parse(text, weights=weights).to_exported_program()
    assert torch.equal(up.module()(x), x * w + w)


def test_a_view_of_what_lies_otherwise_is_torchs_reshape() -> None:
    """Values have no strides here; torch refuses to view some."""
    text = """func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<8x3xf32> {
      %t = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
      %c = aten.clone.default(%t) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
      %y = aten._unsafe_view.default(%c, [8, 3]) : (tensor<2x4x3xf32>) -> tensor<8x3xf32>
      func.return %y : tensor<8x3xf32>
    }"""
    program, x = stepwell.parse(text), torch.rand(2, 3, 4)
    for got in (program.run(x)[0], program.to_exported_program().module()(x)):
        assert torch.equal(got, x.mT.reshape(8, 3))
