"""A softmax of bytes for an NPU, which has no whole division (U55, U65) or a slow one (U85).

The row's maximum is a REDUCE_MAX of the bytes as they are stored, for wider ones the U55 has not.
Exponentials and their sum are those of `lower-int8-softmax`. Sum and exponentials are shifted up by
the sum's leading zeros, so that the sum stands between 2^30 and 2^31; a TABLE of 513 entries of 16
bits then has its reciprocal, and one product is the quotient.

How far it is from the real softmax, in units of the result before it is rounded: the exponentials
of n elements, of which the largest is 2^p and each is off by 1/2, move a quotient by
n / (2^(p+1) scale); the sum rounded to 16 bits, the table's entries and the line between two of them
by 2^-15 + 2^-15 + 2^-16 of itself, less than 2^-13 / scale. Less than one, and the integers are at
most one unit apart.

Before:
    %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xf32>
    %s = aten._softmax.default(%a, 1, false) : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %y = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
After:
    %0 = quant.scast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xi8>
    %1 = tosa.reduce_max %0 {axis = 1 : i32} : (tensor<2x8xi8>) -> tensor<2x1xi8>
    %2 = tosa.rescale %1, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x1xi32>
    %3 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %4 = tosa.sub %3, %2 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    %5 = tosa.rescale %4, dense<1073741824>, dense<30>, dense<0>, dense<127> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
    %6 = stepwell.weight <"constant#559a4cbc41db"> "constant" : tensor<256xi8>
    %7 = tosa.table %5, %6 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
    %8 = tosa.rescale %7, dense<1073741824>, dense<30>, dense<-128>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %9 = stepwell.weight <"constant#ae16f7cdbbe7"> "constant" : tensor<256xi8>
    %10 = tosa.table %5, %9 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
    %11 = tosa.rescale %10, dense<1073741824>, dense<22>, dense<-128>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %12 = tosa.add %8, %11 : (tensor<2x8xi32>, tensor<2x8xi32>) -> tensor<2x8xi32>
    %13 = tosa.reduce_sum %12 {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
    %14 = tosa.clz %13 : (tensor<2x1xi32>) -> tensor<2x1xi32>
    %15 = tosa.sub %14, dense<1> : (tensor<2x1xi32>, tensor<1x1xi32>) -> tensor<2x1xi32>
    %16 = tosa.logical_left_shift %13, %15 : (tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
    %17 = tosa.rescale %16, dense<1073741824>, dense<46>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi16>) -> tensor<2x1xi16>
    %18 = stepwell.weight <"constant#472df11092d9"> "constant" : tensor<513xi16>
    %19 = tosa.table %17, %18 : (tensor<2x1xi16>, tensor<513xi16>) -> tensor<2x1xi32>
    %20 = tosa.logical_left_shift %12, %15 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    %21 = tosa.mul %20, %19, dense<31> : (tensor<2x8xi32>, tensor<2x1xi32>, tensor<1xi8>) -> tensor<2x8xi32>
    %22 = tosa.rescale %21, dense<1073774593>, dense<43>, dense<0>, dense<-128> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
    %y = quant.scast %22 : tensor<2x8xi8> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i16, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound
from stepwell.translate.quantised.recognise import Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    Quantised,
    is_rescaled,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.integers.lower_int8_softmax import (
    LowerInt8Softmax,
    axis_of,
    exponentials,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

_ONE = 32767
"""The reciprocal of the least sum, 2^30, in the table."""


def bits_for(count: int, scale: float) -> int | None:
    """The fewest bits that keep a softmax of `count` elements less than a unit off, or None."""
    for bits in (16, 20):  # Two bytes and two tables, or three.
        if count << bits >= 1 << 31 or not is_rescaled(1 / (64 * _ONE * scale), 64.0 * _ONE):
            return None
        if count / (2.0 ** (bits + 1) * scale) + 2.0**-13 / scale < 0.99:
            return bits
    return None


@dataclass(frozen=True)
class LowerSoftmaxByTable(LowerInt8Softmax):
    """`q(softmax(dq(x)))` with a reciprocal looked up."""

    name: ClassVar[str] = "lower-softmax-by-table"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._SoftmaxDefault,)
    bound: ClassVar[Bound] = Bound(units=1, reason="exponentials of 16 bits, reciprocals of 15")

    def bits(self, count: int, scale: float) -> int | None:
        """Those of `bits_for`."""
        return bits_for(count, scale)

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Some twenty operators, half of them over a row's one number."""
        x, axis = match.inputs[0], axis_of(match.op)
        bits = bits_for(shape_of(x.value)[axis], use.held.scale)
        assert bits is not None
        bytes_, zero = stored(x.value, b), x.held.zero_point
        greatest = rescale(b.reduce(t.ReduceMaxOp, bytes_, axis), [1.0], i32, zero, 0, b)
        below = b.binary(t.SubOp, rescale(bytes_, [1.0], i32, zero, 0, b), greatest)
        powers = exponentials(rescale(below, [1.0], i8, 0, 127, b), x.held.scale, bits, b)
        total = b.reduce(t.ReduceSumOp, powers, axis)
        places = b.scalar(t.SubOp, b.unary(t.ClzOp, total), 1)
        upper = rescale(b.binary(t.LogicalLeftShiftOp, total, places), [2.0**-16], i16, 0, 0, b)
        inverse = b.op(t.TableOp, [upper, b.constant(reciprocals())], shape_of(upper), i32)
        shifted = b.binary(t.LogicalLeftShiftOp, powers, places)
        shift = b.number(31, 1, i8)
        quotient = b.op(t.MulOp, [shifted, inverse, shift], shape_of(powers), i32)
        return rescale(quotient, [1 / (64 * _ONE * use.held.scale)], i8, 0, use.held.zero_point, b)


def reciprocals() -> torch.Tensor:
    """2^14 / x in units of 1 / 32767 of 513 numbers x from -2^15 to 2^15; 1 below 2^14."""
    numbers = torch.arange(-(1 << 15), (1 << 15) + 1, 128, dtype=torch.float64)
    return torch.round(_ONE * (1 << 14) / numbers.clamp(min=1 << 14)).to(torch.int16)
