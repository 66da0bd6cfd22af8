"""Lowerings of sums, products, clamps and selections of quantized values.

Operands are rescaled to int32: to a common scale for a sum, or to the result's scale for a
selection. At that scale the integers are ordered like the reals and are not saturated yet. One
RESCALE converts the result to its integers.
"""

from __future__ import annotations

from typing import Any

from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i32
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.integers.values import (
    Integers,
    delivered,
    needs_reach,
    needs_scales,
    needs_two,
    rescaled,
)
from stepwell.translate.lowerings.tosa.movement import from_the_first_axis
from stepwell.translate.lowerings.tosa.values import Value, clamp, where
from stepwell.translate.quantized.layers import Parts
from stepwell.translate.quantized.recognize import Use, clamp_bounds, narrowed
from stepwell.translate.rewrites.tosa.integers.integers import LEFT_SHIFT
from stepwell.translate.rewrites.tosa.operators.building import Builder

TWO = """
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %b = quant.dcast %z : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xf32>
    %s = aten.{} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %y = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
"""
ONE = """
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %s = aten.{} : (tensor<4xf32>) -> tensor<{}xf32>
    %y = quant.qcast %s : tensor<{}xf32> to tensor<{}x!quant.uniform<i8:f32, 1.0>>
"""
MOST = 2.0**14
"""How much finer than an operand's the scale of a selection may be: int32 must represent it."""


@lowers(
    {"aten.add.Tensor": t.AddOp, "aten.sub.Tensor": t.SubOp},
    to="tosa",
    quantized_operands=2,
    sample=TWO.format("add.Tensor(%a, %b)"),
)
def int8_add(
    x: Integers, other: Integers, *, form: type[TosaOp], alpha: Any, op: Any, use: Use
) -> Value:
    """Rescale both operands to int32 at a common scale, add, and RESCALE.

    Twice the larger scale leaves headroom for the sum.
    """
    if alpha != 1:
        refuse(f"alpha is {alpha}, not 1")
    needs_two(op)
    common = 2 * max(x.held.scale, other.held.scale)
    gain = float(1 << LEFT_SHIFT[x.held.bits])
    back = common / (gain * use.held.scale)
    needs_reach(use, (back, gain * (1 << x.held.bits)))
    first, second = (each.wide(gain * each.held.scale / common) for each in (x, other))
    return delivered(first.binary(form, second), back, use)


@lowers("aten.mul.Tensor", to="tosa", quantized_operands=2, sample=TWO.format("mul.Tensor(%a, %b)"))
def int8_mul(x: Integers, other: Integers, *, op: Any, use: Use) -> Value:
    """Multiply both operands without zero points in int32, and RESCALE.

    MUL takes integers of 8 and 16 bits directly if neither has a zero point: products of 16 bits
    are at most 2^30.
    """
    needs_two(op)
    factor = x.held.scale * other.held.scale / use.held.scale
    needs_reach(use, (factor, 1 << 16 if x.held.bits == 8 else 1 << 30))
    both = [each.stored() for each in (x, other)]
    if x.held.zero_point or other.held.zero_point:
        zeros = (x.held.zero_point, other.held.zero_point)
        both = [rescaled(y, 1.0, zero) for y, zero in zip(both, zeros, strict=True)]
    return delivered(both[0].binary(t.MulOp, both[1], i32), factor, use)


@lowers(
    "aten.clamp.default",
    to="tosa",
    quantized_operands=1,
    sample=ONE.format("clamp.default(%a, -1.0, 1.0)", 4, 4, 4),
)
def int8_clamp(x: Integers, *, op: Any, use: Use) -> Value:
    """Clamp the result's integers, after a RESCALE if needed: quantization is monotone."""
    bounds = clamp_bounds(op)
    if bounds is None:
        refuse("a bound is computed at run time")
    needs_scales(use, x)
    low, high = narrowed(use.held, (bounds,))
    y = x.at(use.held)
    return y if (low, high) == (use.held.low, use.held.high) else clamp(y, low, high)


@lowers(
    {"aten.minimum.default": t.MinimumOp, "aten.maximum.default": t.MaximumOp},
    to="tosa",
    quantized_operands=2,
    takes_symbols=False,
    sample=TWO.format("minimum.default(%a, %b)"),
)
def int8_extremum(x: Integers, other: Integers, *, form: type[TosaOp], op: Any, use: Use) -> Value:
    """Lower to MINIMUM or MAXIMUM in int32."""
    needs_two(op)
    needs_scales(use, x, other, most=MOST)
    first, second = (each.wide(each.held.scale / use.held.scale) for each in (x, other))
    return delivered(first.binary(form, second), 1.0, use)


@lowers(
    "aten.where.self",
    to="tosa",
    quantized_operands=lambda op: Parts(op.operands[1:]),
    takes_symbols=False,
    sample=TWO.replace("aten.{} : (", "aten.where.self(%c, %a, %b) : (tensor<4xi1>, "),
)
def int8_where(x: Integers, other: Integers, *, op: Any, use: Use, b: Builder) -> Value:
    """Lower to SELECT in int32."""
    needs_scales(use, x, other, most=MOST)
    values = [each.wide(each.held.scale / use.held.scale) for each in (x, other)]
    return delivered(where(Value(op.operands[0], b), *values), 1.0, use)


@lowers(
    "aten.constant_pad_nd.default",
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    sample=ONE.format("constant_pad_nd.default(%a, [1, 0])", 5, 5, 5),
)
def int8_pad(x: Integers, *, pad: Any, value: Any, use: Use) -> Value:
    """Lower to one PAD, after a RESCALE if needed; the padding is quantized at compile time."""
    pads = from_the_first_axis(pad, len(x.shape))
    needs_scales(use, x)
    return x.at(use.held).pad(pads, int(quantize(torch.tensor([float(value)]), use.held)))


RULES = lowerings_of(__name__)
