"""Lowerings of quantized products: 32-bit accumulators, then one RESCALE to the result's scale.

Activations of 16 bits have accumulators of 48 bits and 16-bit multipliers (the extension `int16`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from xdsl.ir import Attribute

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.constants import const, const_of_key
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i32
from stepwell.ir.types import tensor
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.convolving import ONCE, Placed, convolved, slices_of
from stepwell.translate.lowerings.tosa.integers.values import Integers, delivered, needs_reach
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantized.layers import Layer, weighted
from stepwell.translate.quantized.recognize import Bias, Use, integer_bias
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS, rescale
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of

Rows = Literal["batch", "height", "width"]
"""The axis of a convolution's image to which the rows of a linear layer are mapped."""
LAYER = """
    %w = stepwell.weight <"w"> "parameter" : tensor<{0}xi8>
    %t = quant.scast %w : tensor<{0}xi8> to tensor<{0}x!quant.uniform<i8:f32, 0.25>>
    %a = quant.dcast %x : tensor<{1}x!quant.uniform<i8:f32, 0.5:3>> to tensor<{1}xf32>
    %b = quant.dcast %t : tensor<{0}x!quant.uniform<i8:f32, 0.25>> to tensor<{0}xf32>
    %l = aten.{2} : (tensor<{1}xf32>, tensor<{0}xf32>) -> tensor<{3}xf32>
    %y = quant.qcast %l : tensor<{3}xf32> to tensor<{3}x!quant.uniform<i8:f32, 2.0:-1>>
"""


def _sums(bits: int) -> Attribute:
    """Return the element type of accumulators."""
    return i32 if bits == 8 else i48


def _scales(layer: Layer) -> list[float]:
    """Return the scales of the accumulators."""
    return [layer.inputs[0].held.scale * scale for scale in layer.weight.held.scales]


def _needs_sums(layer: Layer, use: Use, depth: int) -> None:
    """Refuse accumulators of `depth` products that may overflow 32 bits together with a bias."""
    bits = layer.inputs[0].held.bits
    reach = depth * float(1 << (2 * bits - 1))
    if bits == 8:
        reach = 2.0**31 - 1 if layer.bias is not None else min(reach, 2.0**31 - 1)
    needs_reach(use, (max(_scales(layer)) / use.held.scale, reach))


def _bias(
    bias: Bias | None, scales: Sequence[float], channels: int, bits: int, b: Builder
) -> Value:
    """Return a bias at the accumulators' scales, one per channel, or [0] if there is none."""
    if bits == 16:
        return _wide_bias(bias, scales, channels, b)
    key = integer_bias(bias, scales, channels, b.rw.program)
    if key is None:
        return Value(b.constant(torch.zeros(1, dtype=torch.int32)), b)
    return Value(b.weight(key), b)


@recipe("tosa_bias48")
def tosa_bias48(
    bias: torch.Tensor, *, scales: Sequence[float], unit: Sequence[float] | None
) -> torch.Tensor:
    """Return a bias at the accumulators' scales, in integers of up to 48 bits."""
    reals = (
        bias.double()
        if unit is None
        else bias.double() * torch.tensor(unit, device=bias.device).double()
    )
    return torch.round(reals / torch.tensor(scales, dtype=torch.float64, device=bias.device)).to(
        torch.int64
    )


def _wide_bias(bias: Bias | None, scales: Sequence[float], channels: int, b: Builder) -> Value:
    if bias is None:
        return Value(b.rw.insert(const(torch.zeros(1), i48)).results[0], b)
    unit = None if bias.unit is None else list(bias.unit)
    key = b.rw.weights.derive("tosa_bias48", [bias.key], scales=list(scales), unit=unit)
    return Value(b.rw.insert(const_of_key(key, tensor([channels], i48))).results[0], b)


def _to_result(
    placed: Placed, bias: Value, x: Integers, scales: Sequence[float], use: Use
) -> Value:
    """Add up the products of one operator, and rescale the sums to the result's scale."""
    sums, held = _sums(x.held.bits), use.held
    y = placed.summed(bias, sums, sums, x.held.zero_point)
    factors = [scale / held.scale for scale in scales]
    return Value(rescale(y.ssa, factors, WIDTHS[held.bits], 0, held.zero_point, x.b), x.b)


def _slice(held: Sequence[float], index: int, count: int) -> list[float]:
    """Return one of `count` equal parts of per-channel numbers; a shared number is unchanged."""
    size = len(held) // count if len(held) > 1 else 0
    return list(held[index * size : (index + 1) * size]) if size else list(held)


def _bias_slice(bias: Bias | None, index: int, count: int, b: Builder) -> Bias | None:
    if bias is None or count == 1:
        return bias
    weights = b.rw.weights
    (channels,) = weights.type_of(bias.key).get_shape()
    size = channels // count
    key = weights.derive("tosa_slice", [bias.key], axis=0, start=index * size, size=size)
    return Bias(key, None if bias.unit is None else tuple(_slice(bias.unit, index, count)))


@lowers(
    "aten.convolution.default",
    to="tosa",
    quantized_operands=weighted,
    sample=LAYER.format(
        "3x2x1x1",
        "1x2x4x4",
        "convolution.default(%a, %b, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
        "1x3x4x4",
    ),
)
def int8_convolution(
    x: Integers,
    *,
    transposed: bool,
    dilation: Any,
    op: Any,
    layer: Layer,
    use: Use,
    out: Out,
    b: Builder,
) -> Value:
    """Transpose, convolve and rescale each group of channels, and transpose back.

    The operator is CONV2D, DEPTHWISE_CONV2D, CONV3D or TRANSPOSE_CONV2D.
    """
    axes, kernel = len(x.shape) - 2, shape_of(op.operands[1])
    if transposed and axes == 3:
        refuse("TOSA has no transposed convolution of three axes")
    if transposed and any(d != 1 for d in dilation):
        refuse("dilation is not 1; TRANSPOSE_CONV2D has none")
    _needs_sums(layer, use, elements(kernel) // max(kernel[int(transposed)], 1))
    scales, count = _scales(layer), slices_of(op)

    def convolve(placed: Placed) -> Value:
        own = scales if transposed else _slice(scales, placed.group, count)
        bias = _bias_slice(layer.bias, placed.group, count, b)
        added = _bias(bias, own, out.shape[1] // count, x.held.bits, b)
        return _to_result(placed, added, x, own, use)

    weight = Value(b.weight(layer.weight.key), b)
    return convolved(op, x.stored(), weight, convolve, x.held.zero_point)


@lowers(
    "aten.linear.default",
    to="tosa",
    quantized_operands=weighted,
    sample=LAYER.format("3x4", "2x4", "linear.default(%a, %b)", "2x3"),
)
def int8_linear(
    x: Integers, *, op: Any, layer: Layer, use: Use, out: Out, b: Builder, rows: Rows = "batch"
) -> Value:
    """Lower to a CONV2D with a kernel of 1 by 1, which adds the bias, then RESCALE.

    Its rows are a `batch` of images of one element, or the `height` or `width` of one image.
    """
    if len(shape_of(op.operands[1])) != 2:
        refuse("the weight is one row, so that there is no axis of outputs")
    width, depth = shape_of(op.operands[1])
    _needs_sums(layer, use, depth)
    count = elements(x.shape) // depth
    places = {"batch": (count, 1, 1), "height": (1, count, 1), "width": (1, 1, count)}[rows]
    image = x.stored().reshape(*places, depth)
    kernel = Value(b.weight(layer.weight.key), b).reshape(width, 1, 1, depth)
    scales = _scales(layer)
    bias = _bias(layer.bias, scales, width, x.held.bits, b)
    placed = Placed(t.Conv2dOp, image, kernel, (*places, width), ONCE)
    return _to_result(placed, bias, x, scales, use).reshape(*out.shape)


@lowers(
    "aten.bmm.default",
    to="tosa",
    quantized_operands=2,
    takes_symbols=False,
    sample="""
        %a = quant.dcast %x : tensor<1x2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4xf32>
        %b = quant.dcast %z : tensor<1x4x3x!quant.uniform<i8:f32, 0.25>> to tensor<1x4x3xf32>
        %l = aten.bmm.default(%a, %b) : (tensor<1x2x4xf32>, tensor<1x4x3xf32>) -> tensor<1x2x3xf32>
        %y = quant.qcast %l : tensor<1x2x3xf32> to tensor<1x2x3x!quant.uniform<i8:f32, 2.0:-1>>
    """,
)
def int8_bmm(x: Integers, other: Integers, *, use: Use, out: Out, b: Builder) -> Value:
    """Lower to one MATMUL, which subtracts the zero points, then RESCALE."""
    bits, factor = x.held.bits, x.held.scale * other.held.scale / use.held.scale
    most = 2.0**31 - 1 if bits == 8 else 2.0**47
    needs_reach(use, (factor, min(x.shape[-1] * float(1 << (2 * bits)), most)))
    zeros = [b.number(each.held.zero_point, 1, WIDTHS[bits]) for each in (x, other)]
    y = x.stored().made(t.MatMulOp, out.shape, other.stored(), *zeros, dtype=_sums(bits))
    return delivered(y, factor, use)


RULES = lowerings_of(__name__)
