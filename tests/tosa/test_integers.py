"""Integer layers as ExecuTorch's own TOSA quantizer annotates them: 8 and 16 bits, tables."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import stepwell
from quantized import small_conv_net

from .arm_quantized import WIDTHS, parameters, quantized, rounded, stored
from .graphs import Of

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


@pytest.mark.parametrize("bits", [8, 16])
def test_a_network_is_within_a_unit_of_torch_and_equal_on_the_reference_model(bits: int) -> None:
    assert units_apart(*small_conv_net(), bits) <= 1


def test_functions_products_and_differences_of_8_bits() -> None:
    x = torch.randn(1, 4, 3, 3)
    assert (
        units_apart(
            Of(lambda x, y: torch.sigmoid(x) * y - functional.hardswish(y)), (x, 2 * x.flip(1)), 8
        )
        <= 1
    )


@pytest.mark.parametrize("bits", [8, 16])
def test_a_product_of_two_computed_values(bits: int) -> None:
    assert units_apart(Of(torch.bmm), (torch.randn(2, 3, 8), torch.randn(2, 8, 5)), bits) <= 1


@pytest.mark.parametrize(("bits", "rescales"), [(8, 3), (16, 1)])
def test_a_product_without_zero_points_takes_the_integers_as_they_are(
    bits: int, rescales: int
) -> None:
    torch.manual_seed(0)
    inputs = (torch.rand(1, 4, 3, 3) + 1, torch.randn(1, 4, 1, 1))
    assert units_apart(Of(torch.mul), inputs, bits) <= 1
    target = "tosa-1.0+int" + "+int16" * (bits == 16)
    lowered = stepwell.lower(quantized(Of(torch.mul), inputs, bits), target)
    names = [op.name for op in lowered.program.method().body.block.ops]
    assert names.count("tosa.rescale") == rescales and names.count("tosa.mul") == 1


def test_16_bits_need_the_extension() -> None:
    exported = quantized(*small_conv_net(), 16)
    with pytest.raises(stepwell.StepwellError, match="extension int16"):
        stepwell.lower(exported, "tosa-1.0+int")


def test_a_function_of_16_bits() -> None:
    assert units_apart(nn.Sigmoid(), (torch.randn(2, 8),), 16) <= 1


def normed(x: Tensor) -> Tensor:
    return rounded(functional.layer_norm(rounded(x, 0.02, 3), (8,)), 0.03, 0)


def test_a_norm_that_was_not_taken_apart_is_refused_with_its_reason() -> None:
    exported = torch.export.export(Of(normed), (torch.randn(2, 8),))
    with pytest.raises(stepwell.StepwellError, match="the root of a mean"):
        stepwell.lower(exported, "tosa-1.0+int")


def chosen(x: Tensor) -> Tensor:
    return rounded(torch.softmax(rounded(x, 0.001, 0, 16), -1), 0.0001, 0, 16)


def test_a_float_between_integers_says_why_it_is_one() -> None:
    exported = torch.export.export(Of(chosen), (torch.randn(2, 8),))
    with pytest.raises(stepwell.StepwellError, match=r"float by tosa.reduce_max.*interpolates"):
        stepwell.lower(exported, "tosa-1.0+int+int16")
