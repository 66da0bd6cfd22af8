"""Shifts of integers: LOGICAL_LEFT_SHIFT and ARITHMETIC_RIGHT_SHIFT.

TOSA shifts by 0 to 31 places. torch shifts by any number: to the left by less than 0, or by all bits
and more, leaves 0, and to the right the sign. Counts that only the run knows are therefore brought into
TOSA's range, in int32, of whose places the narrower types have the lowest.

Before:
    %y = aten.bitwise_left_shift.Tensor_Scalar(%x, 3) : (tensor<4xi8>) -> tensor<4xi8>
After:
    %y = tosa.logical_left_shift %x, dense<3> : (tensor<4xi8>, tensor<1xi8>) -> tensor<4xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, i1, i32
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, broadcast, shape_of
from stepwell.translate.rewrites.tosa.choices import at_least, greater, select
from stepwell.translate.rewrites.tosa.lower_bits import INTEGERS
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa

_FORMS = ("bitwise_{}_shift.Tensor", "bitwise_{}_shift.Tensor_Scalar")
LEFT, RIGHT = (
    tuple(
        op_class(f"aten.{name}")
        for name in (
            *(form.format(side) for form in _FORMS),
            *(f"__{word}shift__.{kind}" for kind in ("Tensor", "Scalar")),
        )
    )
    for side, word in (("left", "l"), ("right", "r"))
)
MOST = 31
"""The most places that TOSA shifts by."""


@dataclass(frozen=True)
class LowerShift(LowerToTosa):
    """`bitwise_left_shift`, `bitwise_right_shift`, `<<` and `>>` of integers of up to 32 bits."""

    name: ClassVar[str] = "lower-shift-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*LEFT, *RIGHT)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Integers of one type that TOSA shifts; numbers that are known."""
        held = {element(value.type) for value in (*op.operands, *op.results)}
        if len(held) > 1:
            return Refusal("the operands have several dtypes")
        (kind,) = held
        if kind not in INTEGERS:
            return Refusal(f"TOSA shifts integers of 8, 16 and 32 bits, not {dtype_name(kind)}")
        other = op.arg("other")
        if not isinstance(other, SSAValue | int):
            return Refusal("it shifts by no whole number, or by one known only at run time")
        if isinstance(other, int) and not -(1 << 31) <= other < 1 << 31:
            return Refusal(f"it shifts by {other} places, which 32 bits do not hold")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One operator for a number of places within the type, else that and its limits."""
        x, other = op.operands[0], op.arg("other")
        held = element(x.type)
        assert isinstance(held, IntegerType)
        places = _known(other, held.width.data, b)
        if places is not None:
            if 0 <= places < held.width.data:
                return _shifted(op, x, b.splat(places, x), held, b)
            if isinstance(op, LEFT):
                return b.scalar(t.BitwiseAndOp, x, 0)
            return _shifted(op, x, b.splat(held.width.data - 1, x), held, b)
        assert isinstance(other, SSAValue)
        rank = len(shape_of(op.results[0]))
        wide, count = (b.of_rank(_widened(value, b), rank) for value in (x, other))
        within = b.scalar(t.MinimumOp, b.scalar(t.MaximumOp, count, 0), MOST)
        if isinstance(op, RIGHT):
            within = select(greater(0, count, b), MOST, within, within, b)
            return _narrowed(_shifted(op, wide, within, i32, b), held, b)
        y = _shifted(op, wide, within, i32, b)
        inside = b.binary(t.LogicalAndOp, at_least(count, 0, b), at_least(MOST, count, b), i1)
        return _narrowed(select(inside, y, 0, y, b), held, b)


def _known(other: SSAValue | int, bits: int, b: Builder) -> int | None:
    """The number of places, where it is one number for all elements and known.

    torch makes a number one of the tensor's type first, of which it keeps the lowest bits.
    """
    if isinstance(other, int):
        half = 1 << (bits - 1)
        return (other + half) % (2 * half) - half
    key = weight_key(other)
    held = None if key is None else b.rw.weights.get(key)
    return int(held.reshape(())) if held is not None and held.numel() == 1 else None


def _shifted(op: SchemaOp, x: SSAValue, count: SSAValue, held: Attribute, b: Builder) -> SSAValue:
    if isinstance(op, LEFT):
        return b.binary(t.LogicalLeftShiftOp, x, count)
    shape = broadcast(shape_of(x), shape_of(count))
    return b.op(t.ArithmeticRightShiftOp, [x, count], shape, held, round=IntegerAttr(0, i1))


def _widened(value: SSAValue, b: Builder) -> SSAValue:
    return value if element(value.type) == i32 else b.op(t.CastOp, [value], shape_of(value), i32)


def _narrowed(value: SSAValue, held: Attribute, b: Builder) -> SSAValue:
    return value if held == i32 else b.op(t.CastOp, [value], shape_of(value), held)
