"""Whole models become one TOSA graph that the reference model runs."""

from collections import Counter

import pytest
import torch
from torch import nn
from xdsl.dialects.func import ReturnOp

import stepwell
from deit import deit_small_depth2
from mobilenet import mobilenet_v2
from resnet import resnet8, resnet18
from stepwell.dialects.tosa.constants import is_constant

from .graphs import Of, assert_agree


def operators(lowered: "stepwell.Lowered") -> Counter[str]:
    """The non-constant operators of a lowered program by name."""
    block = lowered.program.method().body.block
    return Counter(
        op.name for op in block.ops if not is_constant(op) and not isinstance(op, ReturnOp)
    )


def lowered_model(model: nn.Module, inputs: tuple[torch.Tensor, ...], target: str = "tosa-1.0+fp"):
    return stepwell.lower(torch.export.export(model.eval(), inputs), target)


@pytest.mark.parametrize("make", [resnet8, deit_small_depth2], ids=lambda make: make.__name__)
def test_a_model_computes_the_same_on_the_reference_model(make) -> None:
    model, inputs = make()
    bound = 2e-5 * float(model(*inputs).abs().max())
    assert_agree(lowered_model(model, inputs), model, *inputs, atol=bound)


STOCK = {"resnet18": 55, "mobilenet_v2": 103}
"""Non-constant operators of ExecuTorch 1.5.1's Arm backend, measured on the same models."""


@pytest.mark.parametrize("make", [resnet18, mobilenet_v2], ids=lambda make: make.__name__)
def test_a_model_takes_fewer_operators_than_the_stock_flow(make) -> None:
    model, inputs = make()
    assert sum(operators(lowered_model(model, inputs)).values()) < STOCK[make.__name__]


def test_a_convolutional_network_keeps_one_transpose() -> None:
    model, inputs = resnet8()
    assert operators(lowered_model(model, inputs))["tosa.transpose"] == 1


def test_what_tosa_cannot_hold_is_listed_with_reasons() -> None:
    model = Of(lambda x: torch.linalg.inv(x) + torch.linalg.qr(x)[0].sum())
    with pytest.raises(stepwell.StepwellError, match="linalg_inv") as caught:
        lowered_model(model, (torch.randn(4, 4),))
    assert len(caught.value.problems) >= 2


def test_a_target_without_the_float_profile_refuses_floats() -> None:
    with pytest.raises(stepwell.StepwellError, match="needs the profile fp"):
        lowered_model(nn.ReLU(), (torch.randn(2, 3),), "tosa-1.0+int")


def test_a_flatbuffer_of_a_model_reads_back_to_the_same_operators() -> None:
    model, inputs = resnet8()
    lowered = lowered_model(model, inputs)
    back = stepwell.read_tosa(lowered.to_tosa())
    assert operators(stepwell.lowering.Lowered(back, lowered.report, lowered.target)) == operators(
        lowered
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tosa-2.0+fp", "TOSA version"),
        ("tosa-1.0", "names no profile"),
        ("tosa-1.0+fp+mxfp", "requires TOSA 1.1"),
        ("tosa-1.0+fp+warp", "no profile or extension 'warp'"),
    ],
)
def test_a_target_that_does_not_exist_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=complaint):
        lowered_model(nn.ReLU(), (torch.randn(2, 3),), name)


@pytest.mark.parametrize("given", [torch.channels_last, torch.contiguous_format])
def test_an_image_means_the_same_however_it_lies_in_memory(given: torch.memory_format) -> None:
    """A flatbuffer has no strides: it takes and gives elements by their indices."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    image = torch.randn(1, 3, 6, 5)
    lowered = lowered_model(model, (image.to(memory_format=torch.channels_last),))
    (found,) = lowered.run(image.to(memory_format=given))
    torch.testing.assert_close(found, model(image), check_stride=False)
