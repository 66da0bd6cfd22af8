"""Running sums: the value is added to itself 1, 2, 4, … places further on.

A product with a triangle of ones would have fewer operators, but 0 · inf in it is NaN. Here an inf or
a NaN reaches only what comes behind it, and a sum of n rounds log2(n) times.

Before:
    %y = aten.cumsum.default(%x, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %0 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
    %1 = tosa.const_shape {values = dense<2> : tensor<2xindex>} : () -> !tosa.shape<2>
    %2 = tosa.slice %x, %0, %1 : (tensor<2x3xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x2xf32>
    %3 = tosa.const_shape {values = dense<[0, 0, 1, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %4 = tosa.pad %2, %3, dense<-0.0> : (tensor<2x2xf32>, !tosa.shape<4>, tensor<1xf32>) -> tensor<2x3xf32>
    %5 = tosa.add %x, %4 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %6 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
    %7 = tosa.const_shape {values = dense<[2, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %8 = tosa.slice %5, %6, %7 : (tensor<2x3xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x1xf32>
    %9 = tosa.const_shape {values = dense<[0, 0, 2, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %10 = tosa.pad %8, %9, dense<-0.0> : (tensor<2x1xf32>, !tosa.shape<4>, tensor<1xf32>) -> tensor<2x3xf32>
    %y = tosa.add %5, %10 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import dtype_name, i32, i64
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.lower_cast import cannot_be_converted, converted
from stepwell.translate.rewrites.tosa.lower_power import narrowed
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa


@dataclass(frozen=True)
class LowerCumsum(LowerToTosa):
    """`cumsum` of floats, in f32, and of integers in the type of the result."""

    name: ClassVar[str] = "lower-cumsum-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.CumsumDefault,)
    takes_symbols: ClassVar[bool] = False

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats of one type, or integers; at least one axis."""
        held, given = element(op.operands[0].type), element(op.results[0].type)
        if given in (i32, i64) and held not in FLOATS:
            if (refusal := cannot_be_converted(held)) is not None:
                return refusal
        elif held not in FLOATS or held != given:
            return Refusal(
                f"it sums {dtype_name(held)} to {dtype_name(given)}; both must be one float type, "
                f"or the sums i32 or i64"
            )
        if not shape_of(op.operands[0]):
            return Refusal("the operand is a scalar, which has no axis")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Added up in f32, or in the integers of the result."""
        x, given = op.operands[0], element(op.results[0].type)
        if given in (i32, i64):
            return added_up(converted(x, given, b), op.arg("dim"), b)
        return narrowed(added_up(b.single(x), op.arg("dim"), b), x, b)


def added_up(x: SSAValue, axis: int, b: Builder) -> SSAValue:
    """Running sums: a SLICE, a PAD with -0, which changes no number, and an ADD each time."""
    shape, held = shape_of(x), element(x.type)
    axis, step = axis % len(shape), 1
    while step < shape[axis]:
        kept = narrow(x, axis, 0, shape[axis] - step, b)
        pads = [step if i == 2 * axis else 0 for i in range(2 * len(shape))]
        operands = [kept, b.sizes(pads), b.number(-0.0, 1, held)]
        x = b.binary(t.AddOp, x, b.op(t.PadOp, operands, shape, held))
        step *= 2
    return x
