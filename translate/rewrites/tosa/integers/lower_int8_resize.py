"""Quantised images resized as integers: RESIZE, whose linear sums a RESCALE brings back.

The weights of a linear RESIZE add up to the product of its numerators, by which RESCALE divides; a
zero point is taken off before, as often as the weights count it.

Before:
    %a = quant.dcast %x : tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x3x3xf32>
    %r = aten.upsample_bilinear2d.default(%a, [6, 6], false) : (tensor<1x2x3x3xf32>) -> tensor<1x2x6x6xf32>
    %y = quant.qcast %r : tensor<1x2x6x6xf32> to tensor<1x2x6x6x!quant.uniform<i8:f32, 0.5:3>>
After:
    %0 = quant.scast %x : tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x3x3xi8>
    %1 = tosa.transpose %0 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x2x3x3xi8>) -> tensor<1x3x3x2xi8>
    %2 = tosa.const_shape {values = dense<[4, 2, 4, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %3 = tosa.const_shape {values = dense<-1> : tensor<2xindex>} : () -> !tosa.shape<2>
    %4 = tosa.const_shape {values = dense<1> : tensor<2xindex>} : () -> !tosa.shape<2>
    %5 = tosa.resize %1, %2, %3, %4 {mode = BILINEAR} : (tensor<1x3x3x2xi8>, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x6x6x2xi32>
    %6 = tosa.sub %5, dense<48> : (tensor<1x6x6x2xi32>, tensor<1x1x1x1xi32>) -> tensor<1x6x6x2xi32>
    %7 = tosa.rescale %6, dense<1073741824>, dense<34>, dense<0>, dense<3> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x6x6x2xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x6x6x2xi8>
    %8 = tosa.transpose %7 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x6x6x2xi8>) -> tensor<1x2x6x6xi8>
    %y = quant.scast %8 : tensor<1x2x6x6xi8> to tensor<1x2x6x6x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.lowerings.tosa.resizing import (
    MODES,
    as_image,
    axes_of,
    not_resized,
    resized,
)
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantised.recognise import Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import TO_NCHW


@dataclass(frozen=True)
class LowerInt8Resize(LowerInt8):
    """`upsample_nearest` and `upsample_bilinear` of lines and images."""

    name: ClassVar[str] = "lower-int8-resize"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(MODES)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Lines or images, for which RESIZE has numbers; linear ones of 8 bits."""
        axes = axes_of(op)
        if refusal := not_resized(op):
            return refusal
        if len(axes) > 2:
            return Refusal("it resizes a volume; RESIZE has two axes")
        if any(axis.parameters() is None for axis in axes):
            return Refusal("RESIZE has no numbers for these sizes")
        if MODES[type(op)] == "linear" and width(op.operands[0]) == 16:
            return Refusal("its sums would have 48 bits with a zero point")
        return None

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """What is interpolated reaches as many times as far as its factor is smaller."""
        return [(factor, 4 * reach) for factor, reach in super().factors(match, use)]

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Channels last, RESIZE, RESCALE, and back."""
        x, axes = match.inputs[0], axes_of(match.op)
        image, plane = as_image(Value(stored(x.value, b), b), axes)
        zero, factor = x.held.zero_point, x.held.scale / use.held.scale
        if MODES[type(match.op)] == "linear":
            sums, weights = resized(image, plane, i32)
            sums = sums - zero * weights if zero else sums
            y = rescale(sums.ssa, [factor / weights], match.held, 0, use.held.zero_point, b)
        else:
            y = resized(image, plane, match.held)[0].ssa
            if (x.held.scale, zero) != (use.held.scale, use.held.zero_point):
                y = rescale(y, [factor], match.held, zero, use.held.zero_point, b)
        return b.reshape(b.transpose(y, TO_NCHW), shape_of(match.op.results[0]))
