"""Running sums of quantised values: added up in int32, then one RESCALE.

Before:
    %a = quant.dcast %x : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3xf32>
    %s = aten.cumsum.default(%a, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = quant.qcast %s : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 1.0:-1>>
After:
    %0 = quant.scast %x : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x3xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x3xi32>
    %2 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
    %3 = tosa.const_shape {values = dense<2> : tensor<2xindex>} : () -> !tosa.shape<2>
    %4 = tosa.slice %1, %2, %3 : (tensor<2x3xi32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x2xi32>
    %5 = tosa.const_shape {values = dense<[0, 0, 1, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %6 = tosa.pad %4, %5, dense<0> : (tensor<2x2xi32>, !tosa.shape<4>, tensor<1xi32>) -> tensor<2x3xi32>
    %7 = tosa.add %1, %6 : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %8 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
    %9 = tosa.const_shape {values = dense<[2, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %10 = tosa.slice %7, %8, %9 : (tensor<2x3xi32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x1xi32>
    %11 = tosa.const_shape {values = dense<[0, 0, 2, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %12 = tosa.pad %10, %11, dense<0> : (tensor<2x1xi32>, !tosa.shape<4>, tensor<1xi32>) -> tensor<2x3xi32>
    %13 = tosa.add %7, %12 : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %14 = tosa.rescale %13, dense<1073741824>, dense<31>, dense<0>, dense<-1> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x3xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x3xi8>
    %y = quant.scast %14 : tensor<2x3xi8> to tensor<2x3x!quant.uniform<i8:f32, 1.0:-1>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.lowerings.tosa.reductions import added_up
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantised.recognise import Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    is_rescaled,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class LowerInt8Cumsum(LowerInt8):
    """`cumsum` along an axis of known size."""

    name: ClassVar[str] = "lower-int8-cumsum"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.CumsumDefault,)

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """Sums that int32 holds and RESCALE takes, whatever the values are."""
        found = super().match(op, program)
        if not isinstance(found, Quantised):
            return found
        shape, given = shape_of(op.operands[0]), found.inputs[0].held
        if not shape:
            return Refusal("the operand is a scalar, which has no axis")
        count = shape[op.arg("dim") % len(shape)]
        reach = float(count << given.bits)
        if not all(is_rescaled(given.scale / use.held.scale, reach) for use in found.uses):
            return Refusal(f"a sum over {count} elements can pass what RESCALE takes")
        return found

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Without the zero point, at the operand's scale."""
        x = match.inputs[0]
        wide = Value(rescale(stored(x.value, b), [1.0], i32, x.held.zero_point, 0, b), b)
        sums = added_up(wide, wide.axis(match.op.arg("dim"))).ssa
        factor = x.held.scale / use.held.scale
        return rescale(sums, [factor], match.held, 0, use.held.zero_point, b)
