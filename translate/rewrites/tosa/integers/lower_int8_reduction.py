"""Sums, means, maxima and minima of integers to REDUCE operators.

A sum runs over int32 without the zero point, and one RESCALE takes it to the result's scale, over
the number of elements for a mean: it rounds once.  Maxima and minima are those of the stored
integers, for quantising is monotone; a RESCALE follows where the scale changes.

Before:
    %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %s = aten.sum.dim_IntList(%a, [1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %y = quant.qcast %s : tensor<2x1xf32> to tensor<2x1x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %0 = quant.scast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %2 = tosa.reduce_sum %1 {axis = 1 : i32} : (tensor<2x4xi32>) -> tensor<2x1xi32>
    %3 = tosa.rescale %2, dense<1073741824>, dense<32>, dense<0>, dense<-1> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x1xi8>
    %y = quant.scast %3 : tensor<2x1xi8> to tensor<2x1x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import Quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.dtypes import i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.quantised.recognise import Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    is_rescaled,
    requantised,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import reduced_axes
from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean

EXTREMA: dict[type[Operation], type[TosaOp]] = {
    aten.AmaxDefault: t.ReduceMaxOp,
    aten.AminDefault: t.ReduceMinOp,
}


@dataclass(frozen=True)
class LowerInt8Reduction(LowerInt8):
    """`sum`, `mean`, `amax`, `amin` over any axes; means of images are `LowerInt8Pool`'s."""

    name: ClassVar[str] = "lower-int8-reduction"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SumDimIntList, aten.MeanDim, *EXTREMA)

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """Sums that int32 holds and RESCALE takes, whatever the values are."""
        shape, axes = shape_of(op.operands[0]), reduced_axes(op)
        if is_image_mean(op, level_of(program.context.target)):
            return Refusal("it is a mean of images, which a pool computes")
        if "keepdim" in op.SCHEMA.by_name and not op.arg("keepdim"):
            return Refusal("its axes are not kept; normalise-reduction keeps them")
        found = super().match(op, program)
        if not isinstance(found, Quantised) or type(op) in EXTREMA:
            return found
        given = found.inputs[0].held
        count = prod(shape[axis] for axis in axes)
        reach = float(count << given.bits)
        if not all(is_rescaled(factor_of(op, given, use.held), reach) for use in found.uses):
            return Refusal(f"a sum over {count} elements can pass what RESCALE takes")
        return found

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """One REDUCE an axis, between RESCALEs for a sum."""
        op, x, axes = match.op, match.inputs[0], reduced_axes(match.op)
        if type(op) in EXTREMA:
            value = stored(x.value, b)
            for axis in axes:
                value = b.reduce(EXTREMA[type(op)], value, axis)
            return requantised(value, x.held, use.held, b)
        value = rescale(stored(x.value, b), [1.0], i32, x.held.zero_point, 0, b)
        for axis in axes:
            value = b.reduce(t.ReduceSumOp, value, axis)
        factor = factor_of(op, x.held, use.held)
        return rescale(value, [factor], match.held, 0, use.held.zero_point, b)


def factor_of(op: SchemaOp, given: Quantization, made: Quantization) -> float:
    """What takes a sum of integers to those of a quantised sum or mean."""
    shape = shape_of(op.operands[0])
    count = prod(shape[axis] for axis in reduced_axes(op)) if isinstance(op, aten.MeanDim) else 1
    return given.scale / made.scale / count
