"""`max` and `min` along an axis, values and places: REDUCE_MAX and ARGMAX; of all elements, too.

Before:
    %v, %y = aten.max.dim(%x, 1) : (tensor<2x5xf32>) -> (tensor<2xf32>, tensor<2xi64>)
    func.return %y : tensor<2xi64>
After:
    %y = tosa.argmax %x {axis = 1 : i32} : (tensor<2x5xf32>) -> tensor<2xi64>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import NanModeAttr
from stepwell.ir.dtypes import i32, i64
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_floats


def place_of_greatest(x: SSAValue, axis: int, b: Builder, ignoring_nan: bool = False) -> SSAValue:
    """ARGMAX, without the axis: the first of equal elements.

    A NaN is greater than every number, or counts as -inf.
    """
    shape = [size for i, size in enumerate(shape_of(x)) if i != axis]
    held = {"nan_mode": NanModeAttr("IGNORE")} if ignoring_nan else {}
    return b.op(t.ArgMaxOp, [x], shape, i64, axis=IntegerAttr(axis, i32), **held)


@dataclass(frozen=True)
class LowerGreatest(LowerToTosa):
    """`max.dim`, `min.dim`, and `max` and `min` of all elements."""

    name: ClassVar[str] = "lower-greatest-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxDim,
        aten.MinDim,
        aten.MaxDefault,
        aten.MinDefault,
    )
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats; 32-bit integers, whose places ARGMAX does not find."""
        if len(op.results) == 1 or not op.results[1].uses:
            held = element(op.operands[0].type)
            return None if held in (*FLOATS, i32) else needs_floats(op)
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> tuple[SSAValue | None, ...]:
        """What is used of both; the place of the smallest is that of the greatest negative."""
        x, places = op.operands[0], None
        greatest = isinstance(op, aten.MaxDim | aten.MaxDefault)
        reduction = t.ReduceMaxOp if greatest else t.ReduceMinOp
        if len(op.results) == 1:
            flat = b.reshape(x, (elements(shape_of(x)),))
            return (b.reshape(b.reduce(reduction, flat, 0), shape_of(op.results[0])),)
        if not shape_of(x):
            x = b.reshape(x, (1,))
        axis, shape = op.arg("dim") % len(shape_of(x)), shape_of(op.results[0])
        if op.results[1].uses:
            found = place_of_greatest(x if greatest else b.negate(x), axis, b)
            places = b.reshape(found, shape)
        return b.reshape(b.reduce(reduction, x, axis), shape), places
