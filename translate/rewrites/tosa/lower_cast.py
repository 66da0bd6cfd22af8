"""Conversions between element types: CAST, with torch's rounding.

TOSA rounds a float to the nearest integer where torch cuts its fraction off, and has no cast
between truth values and floats.

Before:
    %y = aten.to.dtype(%x, f32) : (tensor<4xi1>) -> tensor<4xf32>
After:
    %y = tosa.select %x, dense<1.0>, dense<0.0> : (tensor<4xi1>, tensor<1xf32>, tensor<1xf32>) -> tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import dtype_name, i1, i32, i64
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa


@dataclass(frozen=True)
class LowerCast(LowerToTosa):
    """`to.dtype` and its kin to CAST, SELECT or comparisons."""

    name: ClassVar[str] = "lower-cast-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ToDtype,
        aten.ToDtypeLayout,
        aten.ToDevice,
        aten.ToOther,
        aten._ToCopyDefault,
        aten.TypeAsDefault,
        aten.DimOrderOpsToDimOrderCopyDefault,
    )
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Signed integers, truth values and floats; no change of layout."""
        for value in (op.operands[0], op.results[0]):
            if (refusal := cannot_be_converted(element(value.type))) is not None:
                return refusal
        given, made = (element(value.type) for value in (op.operands[0], op.results[0]))
        if made == i1 and not compares(given):
            return Refusal(
                f"TOSA compares no {dtype_name(given)}, by which it would become a truth"
            )
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The conversion of each element."""
        return converted(op.operands[0], element(op.results[0].type), b)


def cannot_be_converted(held: Attribute) -> Refusal | None:
    """Why TOSA has no cast from or to an element type, or None."""
    signed = isinstance(held, IntegerType) and held.signedness.data.name == "SIGNLESS"
    if held in FLOATS or signed:
        return None
    return Refusal(f"TOSA has no cast from or to {dtype_name(held)}")


def compares(held: Attribute) -> bool:
    """Whether TOSA compares two tensors of an element type."""
    return held in (i1, i32, i64) or held in FLOATS


def converted(x: SSAValue, target: Attribute, b: Builder) -> SSAValue:
    """The values of `x` in another element type, as torch converts them."""
    held, shape = element(x.type), shape_of(x)
    if held == target:
        return x
    if target == i1:
        zero = b.splat(0, x)
        return b.unary(t.LogicalNotOp, b.binary(t.EqualOp, x, zero, i1))
    if held == i1:
        rank = len(shape)
        numbers = [b.number(number, rank, target) for number in (1, 0)]
        return b.select(x, *numbers)
    if held in FLOATS and target not in FLOATS:
        positive = b.binary(t.GreaterOp, x, b.splat(0, x), i1)
        parts = [b.unary(t.FloorOp, x), b.unary(t.CeilOp, x)]
        x = b.select(positive, *parts)
    return b.op(t.CastOp, [x], shape, target)
