"""Requirements of CMSIS-NN's kernels on layers, and the contents of their fields.

Functions take a layer's operands as `Activation`, and return the result in the quantization that a
`Use` states. Data movement next to the kernels is in `rewrites/cmsis/layout/reshape.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import Multiplier, quantize_multiplier, row_overflows
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2dNhwc,
)
from stepwell.dialects.quant import per_tensor
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewriter
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.goals import Goal, Grammar, goal, grammar
from stepwell.translate.lowerings.lowering import refuse
from stepwell.translate.quantized.layers import Layer, Parts, layer_of
from stepwell.translate.quantized.recognize import (
    StoredWeight,
    Use,
    integer_bias,
    typed_weight,
)

IN_UNITS = Bound(absolute=1.0, reason="fixed-point requantization, in units")
AVERAGED = Bound(absolute=1.0, reason="averages are rounded, in units")


def written(op: CmsisOp, b: Rewriter) -> SSAValue:
    """Insert an operator and return its result."""
    return b.insert(op).results[0]


def factor_of(real: float) -> Multiplier:
    """Return a factor for `arm_nn_requantize`; refuse one beyond the range of its shift."""
    multiplier = quantize_multiplier(real)
    needs_shifts(multiplier)
    return multiplier


def needs_shifts(*factors: Multiplier) -> None:
    """Refuse factors beyond the range of `arm_nn_requantize`'s shift."""
    for scale in factors:
        if not -31 <= scale.shift <= 30:
            refuse(f"a factor of {scale.real:g} needs a shift of {scale.shift}, outside -31 … 30")


def multipliers(layer: Layer, use: Use) -> tuple[Multiplier, ...]:
    """Return one multiplier per weight scale."""
    given = layer.inputs[0].held.scale
    return tuple(factor_of(given * scale / use.held.scale) for scale in layer.weight.held.scales)


def bias_key(layer: Layer, channels: int, program: Program) -> str | None:
    """Return the key of int32 biases in units of the products; None if there are none."""
    units = [layer.inputs[0].held.scale * scale for scale in layer.weight.held.scales]
    return integer_bias(layer.bias, units, channels, program)


def needs_sums(
    layer: Layer,
    rows: torch.Tensor,
    scales: Sequence[Sequence[Multiplier]],
    program: Program,
    padded: bool,
) -> None:
    """Refuse weights for which some input would overflow an accumulator or its requantization.

    Args:
        layer: the layer, with its input and bias.
        rows: the weight as `[outputs, products]`, with the filter offset added.
        scales: multipliers for each quantization of the result.
        program: the program, whose weight store has the bias.
        padded: whether windows contain padding, which contributes 0.
    """
    given = layer.inputs[0].held
    low, high = given.low - given.zero_point, given.high - given.zero_point
    if padded:
        low, high = min(low, 0), max(high, 0)
    key = bias_key(layer, len(rows), program)
    bias = None if key is None else program.weights.get(key).long()
    for shifts in ([scale.shift for scale in each] for each in scales):
        for row_overflow in row_overflows(rows, bias, low, high, shifts):
            reach = f"{row_overflow.low} … {row_overflow.high}"
            if row_overflow.in_sum:
                refuse(f"row {row_overflow.row} can accumulate {reach}, which overflows int32")
            refuse(
                f"row {row_overflow.row} is scaled up by 2^{row_overflow.shift}, which takes {reach} past int32"
            )


def requantization(
    quantization: Quantization, use: Use, scales: Sequence[Multiplier]
) -> dict[str, Any]:
    """Return the fields of an operator that convert sums of products to the result's integers."""
    return {
        "input_offset": -quantization.zero_point,
        "output_offset": use.held.zero_point,
        "requantize_multipliers": [scale.multiplier for scale in scales],
        "requantize_shifts": [scale.shift for scale in scales],
        "activation_min": use.low,
        "activation_max": use.high,
    }


def permuted_weight(weight: StoredWeight, order: Sequence[int], b: Rewriter) -> SSAValue:
    """Return a stored weight with permuted axes and its quantized type."""
    key = b.weights.derive("cmsis.permute", [weight.key], permutation=list(order))
    blocks = tuple((order.index(axis), block) for axis, block in weight.held.blocks)
    quantized_type = UniformQuantizedType(replace(weight.held, blocks=blocks))
    return typed_weight(b, key, tensor(dims(b.weights.type_of(key)), quantized_type))


def ones(b: Rewriter, shape: tuple[int, ...], share: float) -> SSAValue:
    """Return a weight of ones with scale `share`, so that a sum adds `share` times each value."""
    key = b.weights.constant(torch.ones(shape, dtype=torch.int8), "ones")
    return typed_weight(b, key, tensor(shape, per_tensor(torch.int8, share)))


def summed_windows(b: Rewriter, image: SSAValue, weight: SSAValue, **fields: Any) -> SSAValue:
    """Insert a depthwise convolution of an NHWC image by one filter per channel, without a bias.

    For a single channel, insert a plain convolution.
    """
    channels = cast(int, dims(weight.type)[-1])
    zero = b.constant(torch.zeros(channels, dtype=torch.int32), "zero_bias")
    fields = {"dilation": (1, 1), "scratch": 0} | fields
    if channels == 1:
        return written(QuantizedConv2dNhwc.make(image, weight, zero, **fields), b)
    op = QuantizedDepthwiseConv2dNhwc.make(image, weight, zero, depth_multiplier=1, **fields)
    return written(op, b)


def _layer(op: SchemaOp, parts: Parts, program: Program, symbols: bool) -> Layer | Refusal:
    return layer_of(op, parts, parts.bits)


goal("cmsis", Goal(IN_UNITS, lambda rw: rw, Value, lambda value: dims(value.type), None))
grammar("cmsis", Grammar(_layer, lambda x, b: x, lambda y, use, b: y, IN_UNITS))
