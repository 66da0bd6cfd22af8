"""A softmax between casts to integers alone: exponentials by bytes, and one whole division.

Less its row's maximum a value is one of 256 integers, so its exponential is looked up, in two or
three bytes with a TABLE each.  The exponentials are added up in int32, and INTDIV divides what the
result's scale makes of each.

How far it is from the real softmax, in units of the result before it is rounded: the exponentials
of n elements, of which the largest is 2^p and each is off by 1/2, move a quotient by
n / (2^(p+1) scale); the division cuts off 2^-g.  Less than one, and the integers are at most one
unit apart.  `Fixed` is the smallest p for which that holds and RESCALE takes every product.

Before:
    %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xf32>
    %s = aten._softmax.default(%a, 1, false) : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %y = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
After:
    %0 = quant.scast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %2 = tosa.reduce_max %1 {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
    %3 = tosa.sub %1, %2 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    %4 = tosa.rescale %3, dense<1073741824>, dense<30>, dense<0>, dense<127> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
    %5 = stepwell.weight <"constant#559a4cbc41db"> "constant" : tensor<256xi8>
    %6 = tosa.table %4, %5 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
    %7 = tosa.rescale %6, dense<1073741824>, dense<30>, dense<-128>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %8 = stepwell.weight <"constant#ae16f7cdbbe7"> "constant" : tensor<256xi8>
    %9 = tosa.table %4, %8 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
    %10 = tosa.rescale %9, dense<1073741824>, dense<22>, dense<-128>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %11 = tosa.add %7, %10 : (tensor<2x8xi32>, tensor<2x8xi32>) -> tensor<2x8xi32>
    %12 = tosa.reduce_sum %11 {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
    %13 = tosa.rescale %11, dense<1073741824>, dense<17>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi32>) -> tensor<2x8xi32>
    %14 = tosa.intdiv %13, %12 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    %15 = tosa.rescale %14, dense<1073741824>, dense<35>, dense<0>, dense<-128> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
    %y = quant.scast %15 : tensor<2x8xi8> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.translate.quantised.recognise import Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    is_rescaled,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class Fixed:
    """Bits of the largest exponential, and of the quotients below the result's unit."""

    bits: int
    guard: int


def fixed_for(count: int, scale: float) -> Fixed | None:
    """The fewest bits that keep a softmax of `count` elements less than a unit off, or None."""
    for bits in range(16, 24):
        for guard in range(8, 0, -1):
            fits = is_rescaled(2.0**guard / scale, 2.0**bits - 1) and count << bits < 1 << 31
            if fits and count / (2.0 ** (bits + 1) * scale) + 2.0**-guard < 0.99:
                return Fixed(bits, guard)
    return None


@dataclass(frozen=True)
class LowerInt8Softmax(LowerInt8):
    """`q(softmax(dq(x)))`."""

    name: ClassVar[str] = "lower-int8-softmax"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._SoftmaxDefault,)
    bound: ClassVar[Bound] = Bound(units=1, reason="exponentials of 16 bits or more, cut quotients")

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """Bytes, whose exponentials 256 entries hold, and rows for which the bits suffice."""
        if width(op.operands[0]) != 8:
            return Refusal(
                "a TABLE of 16-bit integers interpolates, which is too far off for a softmax"
            )
        found = super().match(op, program)
        if not isinstance(found, Quantised):
            return found
        count = shape_of(op.operands[0])[axis_of(op)]
        for use in found.uses:
            if self.bits(count, use.held.scale) is None:
                scale = use.held.scale
                return Refusal(f"a row of {count} at a scale of {scale:g} needs more than 32 bits")
        return found

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """None from the operand's scale; `fixed_for` weighs those of the exponentials."""
        return []

    def bits(self, count: int, scale: float) -> int | None:
        """Those of the largest exponential for a row's elements and the result's scale, or None."""
        fixed = fixed_for(count, scale)
        return None if fixed is None else fixed.bits

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Thirteen operators, or three more for a third byte."""
        x, axis = match.inputs[0], axis_of(match.op)
        fixed = fixed_for(shape_of(x.value)[axis], use.held.scale)
        assert fixed is not None
        wide = rescale(stored(x.value, b), [1.0], i32, x.held.zero_point, 0, b)
        below = b.binary(t.SubOp, wide, b.reduce(t.ReduceMaxOp, wide, axis))
        powers = exponentials(rescale(below, [1.0], i8, 0, 127, b), x.held.scale, fixed.bits, b)
        total = b.reduce(t.ReduceSumOp, powers, axis)
        gain = 2.0**fixed.guard
        scaled = rescale(powers, [gain / use.held.scale], i32, 0, 0, b)
        quotient = b.binary(t.IntDivOp, scaled, total)
        return rescale(quotient, [1.0 / gain], i8, 0, use.held.zero_point, b)


def exponentials(below: SSAValue, scale: float, bits: int, b: Builder) -> SSAValue:
    """exp((c - 127) scale) in units of 2^-bits, of bytes c, in int32."""
    reals = torch.exp(torch.arange(-255, 1, dtype=torch.float64) * scale)
    rest = torch.round(reals * (2.0**bits - 1)).long()
    total: SSAValue | None = None
    for place in range(0, bits, 8):
        entries = b.constant(((rest >> place) % 256 - 128).to(torch.int8))
        byte = b.op(t.TableOp, [below, entries], shape_of(below), i8)
        part = rescale(byte, [2.0**place], i32, -128, 0, b)
        total = part if total is None else b.binary(t.AddOp, total, part)
    assert total is not None
    return total


def axis_of(op: SchemaOp) -> int:
    """The axis of a softmax."""
    return op.arg("dim") % max(len(shape_of(op.operands[0])), 1)
