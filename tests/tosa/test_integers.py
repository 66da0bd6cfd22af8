"""Integer layers as ExecuTorch's own TOSA quantizer annotates them: 8 and 16 bits, tables."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import stepwell
from quantized import small_conv_net

sys.path.insert(0, str(Path(__file__).parent))
from arm_quantized import WIDTHS, parameters, quantized, stored

pytestmark = pytest.mark.usefixtures("ranges_as_seen")


def units_apart(model: nn.Module, inputs: tuple[Tensor, ...], bits: int) -> float:
    """How far the integers are from torch's; ours are the same on the model and in the IR."""
    exported = quantized(model, inputs, bits)
    lowered = stepwell.lower(exported, "tosa-1.0+int" + "+int16" * (bits == 16))
    taken = parameters(lowered, "input")
    integers = [stored(x, *held, bits) for x, held in zip(inputs, taken, strict=True)]
    (found,) = lowered.run(*integers)
    assert found.dtype == WIDTHS[bits]
    assert torch.equal(found, lowered.program.run(*integers)[0])
    ((scale, zero),) = parameters(lowered, "output")
    expected = torch.round(exported.module()(*inputs) / scale) + zero
    return (found.double() - expected.double()).abs().max().item()


class _Functions(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x) * y - nn.functional.hardswish(y)


class _Product(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(x, y)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_network_is_within_a_unit_of_torch_and_equal_on_the_reference_model(bits: int) -> None:
    assert units_apart(*small_conv_net(), bits) <= 1


def test_functions_products_and_differences_of_8_bits() -> None:
    x = torch.randn(1, 4, 3, 3)
    assert units_apart(_Functions(), (x, 2 * x.flip(1)), 8) <= 1


@pytest.mark.parametrize("bits", [8, 16])
def test_a_product_of_two_computed_values(bits: int) -> None:
    assert units_apart(_Product(), (torch.randn(2, 3, 8), torch.randn(2, 8, 5)), bits) <= 1


class _Gate(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


@pytest.mark.parametrize(("bits", "rescales"), [(8, 3), (16, 1)])
def test_a_product_without_zero_points_takes_the_integers_as_they_are(
    bits: int, rescales: int
) -> None:
    torch.manual_seed(0)
    inputs = (torch.rand(1, 4, 3, 3) + 1, torch.randn(1, 4, 1, 1))
    assert units_apart(_Gate(), inputs, bits) <= 1
    target = "tosa-1.0+int" + "+int16" * (bits == 16)
    lowered = stepwell.lower(quantized(_Gate(), inputs, bits), target)
    names = [op.name for op in lowered.program.method().body.block.ops]
    assert names.count("tosa.rescale") == rescales and names.count("tosa.mul") == 1


def test_16_bits_need_the_extension() -> None:
    exported = quantized(*small_conv_net(), 16)
    with pytest.raises(stepwell.StepwellError, match="extension int16"):
        stepwell.lower(exported, "tosa-1.0+int")


def test_a_function_of_16_bits() -> None:
    assert units_apart(nn.Sigmoid(), (torch.randn(2, 8),), 16) <= 1


class _Normed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = functional.layer_norm(qdq(x, 0.02, 3), (8,))
        return qdq(y, 0.03, 0)


def qdq(x: Tensor, scale: float, zero: int) -> Tensor:
    q = torch.ops.quantized_decomposed
    held = q.quantize_per_tensor.default(x, scale, zero, -128, 127, torch.int8)
    return q.dequantize_per_tensor.default(held, scale, zero, -128, 127, torch.int8)


def test_a_norm_that_was_not_taken_apart_is_refused_with_its_reason() -> None:
    exported = torch.export.export(_Normed(), (torch.randn(2, 8),))
    with pytest.raises(stepwell.StepwellError, match="the root of its variance"):
        stepwell.lower(exported, "tosa-1.0+int")


class _Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        q = torch.ops.quantized_decomposed
        held = q.quantize_per_tensor.default(x, 0.001, 0, -32767, 32767, torch.int16)
        real = q.dequantize_per_tensor.default(held, 0.001, 0, -32767, 32767, torch.int16)
        made = q.quantize_per_tensor.default(
            torch.softmax(real, -1), 0.0001, 0, -32767, 32767, torch.int16
        )
        return q.dequantize_per_tensor.default(made, 0.0001, 0, -32767, 32767, torch.int16)


def test_a_float_between_integers_says_why_it_is_one() -> None:
    exported = torch.export.export(_Chosen(), (torch.randn(2, 8),))
    with pytest.raises(stepwell.StepwellError, match=r"float by tosa.reduce_max.*interpolates"):
        stepwell.lower(exported, "tosa-1.0+int+int16")
