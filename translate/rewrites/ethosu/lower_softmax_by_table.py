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
    func.func @forward(%x: tensor<2x8x!quant.uniform<i8:f32, 0.1:3>>) -> tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>> {
      %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xf32>
      %s = aten._softmax.default(%a, 1, false) : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %y = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
      func.return %y : tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
    }
After:
    func.func @forward(%x: tensor<2x8x!quant.uniform<i8:f32, 0.1:3>>) -> tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>> {
      %0 = quant.scast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xi8>
      %1 = tosa.reduce_max %0 {axis = 1 : i32} : (tensor<2x8xi8>) -> tensor<2x1xi8>
      %2 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %3 = stepwell.weight <"constant#37210b1d0755"> "constant" : tensor<1xi8>
      %4 = stepwell.weight <"constant#38ea739e07b0"> "constant" : tensor<1xi8>
      %5 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %6 = tosa.rescale %1, %2, %3, %4, %5 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x1xi32>
      %7 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %8 = stepwell.weight <"constant#37210b1d0755"> "constant" : tensor<1xi8>
      %9 = stepwell.weight <"constant#38ea739e07b0"> "constant" : tensor<1xi8>
      %10 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %11 = tosa.rescale %0, %7, %8, %9, %10 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
      %12 = tosa.sub %11, %6 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
      %13 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %14 = stepwell.weight <"constant#37210b1d0755"> "constant" : tensor<1xi8>
      %15 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %16 = stepwell.weight <"constant#bf4b042bb566"> "constant" : tensor<1xi8>
      %17 = tosa.rescale %12, %13, %14, %15, %16 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
      %18 = stepwell.weight <"constant#559a4cbc41db"> "constant" : tensor<256xi8>
      %19 = tosa.table %17, %18 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
      %20 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %21 = stepwell.weight <"constant#37210b1d0755"> "constant" : tensor<1xi8>
      %22 = stepwell.weight <"constant#c07e5554d636"> "constant" : tensor<1xi8>
      %23 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %24 = tosa.rescale %19, %20, %21, %22, %23 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
      %25 = stepwell.weight <"constant#ae16f7cdbbe7"> "constant" : tensor<256xi8>
      %26 = tosa.table %17, %25 : (tensor<2x8xi8>, tensor<256xi8>) -> tensor<2x8xi8>
      %27 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %28 = stepwell.weight <"constant#fc1855b1f73b"> "constant" : tensor<1xi8>
      %29 = stepwell.weight <"constant#c07e5554d636"> "constant" : tensor<1xi8>
      %30 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %31 = tosa.rescale %26, %27, %28, %29, %30 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
      %32 = tosa.add %24, %31 : (tensor<2x8xi32>, tensor<2x8xi32>) -> tensor<2x8xi32>
      %33 = tosa.reduce_sum %32 {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
      %34 = tosa.clz %33 : (tensor<2x1xi32>) -> tensor<2x1xi32>
      %35 = stepwell.weight <"constant#68e2a2755a91"> "constant" : tensor<1x1xi32>
      %36 = tosa.sub %34, %35 : (tensor<2x1xi32>, tensor<1x1xi32>) -> tensor<2x1xi32>
      %37 = tosa.logical_left_shift %33, %36 : (tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
      %38 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %39 = stepwell.weight <"constant#42a7a412110c"> "constant" : tensor<1xi8>
      %40 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %41 = stepwell.weight <"constant#52da3bd4ec82"> "constant" : tensor<1xi16>
      %42 = tosa.rescale %37, %38, %39, %40, %41 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi16>) -> tensor<2x1xi16>
      %43 = stepwell.weight <"constant#472df11092d9"> "constant" : tensor<513xi16>
      %44 = tosa.table %42, %43 : (tensor<2x1xi16>, tensor<513xi16>) -> tensor<2x1xi32>
      %45 = tosa.logical_left_shift %32, %36 : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
      %46 = stepwell.weight <"constant#35c07ab3fe9f"> "constant" : tensor<1xi8>
      %47 = tosa.mul %45, %44, %46 : (tensor<2x8xi32>, tensor<2x1xi32>, tensor<1xi8>) -> tensor<2x8xi32>
      %48 = stepwell.weight <"constant#04f432b86a41"> "constant" : tensor<1xi32>
      %49 = stepwell.weight <"constant#108366e789be"> "constant" : tensor<1xi8>
      %50 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %51 = stepwell.weight <"constant#c07e5554d636"> "constant" : tensor<1xi8>
      %52 = tosa.rescale %47, %48, %49, %50, %51 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x8xi8>
      %y = quant.scast %52 : tensor<2x8xi8> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
      func.return %y : tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
    }
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
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.integers import Quantised, is_rescaled, rescale, stored
from stepwell.translate.rewrites.tosa.lower_int8_softmax import (
    LowerInt8Softmax,
    axis_of,
    exponentials,
)

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
