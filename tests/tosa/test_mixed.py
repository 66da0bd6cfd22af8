"""Partly quantized programs become one graph: integers where quantized, floats elsewhere."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from eager import Stateful
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401
from torch.export import ExportedProgram, export

import stepwell
from mobilenet import mobilenet_v2_035
from stepwell.quantization.quantizers import without_training
from transformer import transformer_encoder_2layers

from .arm_quantized import quantized_by
from .graphs import Of

TARGET = "tosa-1.0+fp+int"
CONVOLUTION, LINEAR = torch.ops.aten.conv2d.default, torch.ops.aten.linear.default
LIBRARY = torch.ops.quantized_decomposed


class _FloatHead(nn.Module):
    """Two convolutions, one of them depthwise, and a linear layer with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(image))))
        return torch.softmax(self.head(x.mean((2, 3))), -1)


def partly_quantized(
    make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]],
    layer: Callable[..., Tensor],
    per_channel: bool = True,
    which: slice = slice(None),
) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """The model with layers of one kind in int8, those of a slice; all others in float."""
    torch.manual_seed(0)
    model, inputs = make()
    graph = export(model.eval(), inputs).module(check_guards=False)
    chosen = [node.name for node in graph.graph.nodes if node.target is layer][which]
    config = get_symmetric_quantization_config(is_per_channel=per_channel)
    quantizer = without_training(XNNPACKQuantizer().set_operator_type(layer, config))
    quantizer.set_filter_function(lambda node: node.target is not layer or node.name in chosen)
    return quantized_by(quantizer, model, *inputs), inputs


def head() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _FloatHead(), (torch.randn(2, 3, 8, 8),)


def results(
    exported: ExportedProgram, inputs: tuple[Tensor, ...], target: str = TARGET
) -> tuple[Tensor, Tensor, Counter[str]]:
    """The reference model's result, which is the interpreter's, torch's, and the operators."""
    lowered = stepwell.lower(exported, target)
    (found,) = lowered.run(*inputs)
    assert torch.equal(found, lowered.program.run(*inputs)[0])
    counts = Counter(op.name for op in lowered.program.method().body.block.ops)
    return found, exported.module()(*inputs), counts


def last_scale(exported: ExportedProgram) -> float:
    """One unit of the integers quantized last."""
    nodes = [n for n in exported.graph.nodes if n.target is LIBRARY.quantize_per_tensor.default]
    unit = nodes[-1].args[1]
    assert isinstance(unit, float)
    return unit


@cache
def float_head(per_channel: bool) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    return partly_quantized(head, CONVOLUTION, per_channel)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
def test_integer_convolutions_and_a_float_head_are_one_graph(per_channel: bool) -> None:
    exported, inputs = float_head(per_channel)
    found, expected, counts = results(exported, inputs)
    # A unit of the last integers moves a softmax by less than itself: weights are below one.
    assert (found - expected).abs().max() <= last_scale(exported)
    assert counts["tosa.exp"] == 1 and counts["tosa.transpose"] == 1
    assert counts["tosa.cast"] == 2, "into the integers, and out of them"


def test_an_encoder_of_integer_layers_keeps_softmax_and_norms_in_floats() -> None:
    exported, inputs = partly_quantized(transformer_encoder_2layers, LINEAR)
    found, expected, counts = results(exported, inputs)
    layers = sum(node.target is LINEAR for node in exported.graph.nodes)
    assert counts["tosa.conv2d"] == layers
    assert counts["tosa.exp"] == 2 and counts["tosa.rsqrt"] == 4 and counts["tosa.matmul"] == 4
    assert torch.round((found - expected) / last_scale(exported)).abs().max() <= 1


def test_mobilenet_whose_last_layers_are_integers() -> None:
    exported, inputs = partly_quantized(mobilenet_v2_035, CONVOLUTION, which=slice(-4, None))
    found, expected, counts = results(exported, inputs)
    assert counts["tosa.conv2d"] + counts["tosa.depthwise_conv2d"] == 53
    assert counts["tosa.transpose"] == 1, "the borders stop no transpose"
    # A unit in each of the pooled values goes through the classifier.
    (weight,) = (held for held in exported.state_dict.values() if held.dim() == 2)
    assert (found - expected).abs().max() <= last_scale(exported) * weight.abs().sum(1).max()


def test_layers_of_16_bits_between_floats() -> None:
    from executorch.backends.arm.quantizer.arm_quantizer import (
        TOSAQuantizer,
        get_symmetric_a16w8_quantization_config,
    )
    from executorch.backends.arm.tosa.specification import TosaSpecification

    torch.manual_seed(0)
    model, inputs = head()
    quantizer = TOSAQuantizer(TosaSpecification.create_from_string("TOSA-1.0+INT+int16"))
    quantizer.set_module_type(nn.Conv2d, get_symmetric_a16w8_quantization_config())
    exported = quantized_by(quantizer, model, *inputs)
    found, expected, counts = results(exported, inputs, f"{TARGET}+int16")
    assert counts["tosa.rescale"] == 2 and counts["tosa.exp"] == 1
    assert (found - expected).abs().max() <= last_scale(exported)


@pytest.mark.parametrize("target", ["tosa-1.0+fp", "tosa-1.0+int"])
def test_one_profile_alone_is_refused_and_the_remedy_named(target: str) -> None:
    exported, _ = float_head(True)
    with pytest.raises(stepwell.StepwellError, match=r"lower to tosa-1\.0\+fp\+int"):
        stepwell.lower(exported, target)


def border(*parameters: Any) -> Of:
    """The stored integers of a float, and the floats they stand for."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        stored = LIBRARY.quantize_per_tensor(x, *parameters)
        return stored, LIBRARY.dequantize_per_tensor(stored, *parameters)

    return Of(both)


def border_of_channels(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same with a scale for each of three channels."""
    scales, zeros = torch.tensor([0.5, 0.013, 3.0]), torch.zeros(3, dtype=torch.int64)
    parameters = (scales, zeros, 1, -127, 127, torch.int8)
    stored = LIBRARY.quantize_per_channel(x, *parameters)
    return stored, LIBRARY.dequantize_per_channel(stored, *parameters)


def ties_and_extremes(scale: float) -> Tensor:
    """Multiples of half a unit, their neighbors, and numbers far out of every range."""
    half = torch.arange(-600, 600) * (scale / 2)
    far = torch.tensor([32767.0, 32768.0, 1e30, torch.inf, 1e-40, 0.0, 2.0**31]) * scale
    below, above = (torch.nextafter(half, torch.tensor(end)) for end in (-torch.inf, torch.inf))
    return torch.cat([half, below, above, far, -far, torch.randn(1000) * scale * 200])


@pytest.mark.parametrize(
    ("scale", "zero", "low", "high", "bits"),
    [
        (0.5, 3, -128, 127, 8),
        (0.5, 0, -128, 127, 8),
        (1.0, 0, -127, 127, 8),
        (0.1, -128, -128, 127, 8),
        (0.003, 127, -128, 127, 8),
        (1.0, -7, -8, 7, 8),
        (1 / 3, 0, -32768, 32767, 16),
    ],
)
def test_a_border_rounds_as_torch_does(
    scale: float, zero: int, low: int, high: int, bits: int
) -> None:
    held = torch.int8 if bits == 8 else torch.int16
    x = ties_and_extremes(scale)
    exported = export(border(scale, zero, low, high, held), (x,))
    lowered = stepwell.lower(exported, TARGET + "+int16" * (bits == 16))
    for found, ours, expected in zip(
        lowered.run(x), lowered.program.run(x), exported.module()(x), strict=True
    ):
        assert torch.equal(found, expected) and torch.equal(ours, expected)


def test_a_border_with_a_scale_for_each_channel_rounds_as_torch_does() -> None:
    x = torch.stack([ties_and_extremes(scale) for scale in (0.5, 0.013, 3.0)]).unsqueeze(0)
    exported = export(Of(border_of_channels), (x,))
    lowered = stepwell.lower(exported, TARGET)
    for found, expected in zip(lowered.run(x), exported.module()(x), strict=True):
        assert torch.equal(found, expected)


def test_a_quantized_constant_of_a_float_layer_is_computed_ahead_of_time() -> None:
    def layer(held: Any, x: Tensor) -> Tensor:
        weight = LIBRARY.dequantize_per_tensor(held.weight, 0.1, 3, -128, 127, torch.int8)
        return nn.functional.linear(x, weight)

    model = Stateful(layer, weight=torch.randint(-128, 128, (4, 8), dtype=torch.int8))
    x = torch.randn(2, 8)
    _, _, counts = results(export(model, (x,)), (x,))
    assert counts["tosa.cast"] == counts["tosa.sub"] == 0


def test_unsigned_integers_are_refused_with_their_reason() -> None:
    x = torch.randn(4)
    exported = export(border(0.5, 3, 0, 255, torch.uint8), (x,))
    with pytest.raises(stepwell.StepwellError, match="uint8"):
        stepwell.lower(exported, TARGET)
