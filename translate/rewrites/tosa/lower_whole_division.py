"""Whole quotients: INTDIV of integers, and of floats by powers of two, where nothing rounds.

By another number a float's quotient rounds, and next to a whole one it would be off by one: that is
refused, as its remainder is. INTDIV cuts off; floors are one less where a remainder has the other sign.

Before:
    %y = aten.div.Scalar_mode(%x, 3, rounding_mode="trunc") : (tensor<4xi32>) -> tensor<4xi32>
After:
    %y = tosa.intdiv %x, dense<3> : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, i1, i32, i64, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import IntType, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.tosa.building import FLOATS, Builder, shape_of
from stepwell.translate.rewrites.tosa.choices import equal, greater, select
from stepwell.translate.rewrites.tosa.lower_power import narrowed
from stepwell.translate.rewrites.tosa.lower_remainder import LARGEST_EXPONENT, LowerRemainder
from stepwell.translate.rewrites.tosa.lowering import Lowerable, LowerToTosa, unfit

INTEGERS = (i32, i64)
REMAINDERS = (aten.RemainderScalar, aten.RemainderTensor)
FLOORS = (aten.FloorDivideDefault, aten.FloorDivideScalar)


@dataclass(frozen=True)
class LowerWholeDivision(LowerToTosa):
    """`div` with a rounding mode, `floor_divide`; `remainder` and `fmod` of integers."""

    name: ClassVar[str] = "lower-whole-division-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.DivTensorMode,
        aten.DivScalarMode,
        *FLOORS,
        *LowerRemainder.anchors,
    )
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Remainders of floats are lowered elsewhere; what divides is another tensor or a number."""
        type_ = op.operands[0].type
        is_float = isinstance(type_, TensorType) and element(type_) in FLOATS
        if isinstance(op, LowerRemainder.anchors) and is_float:
            return None
        other = _divisor(op, program.weights)
        if isinstance(other, SSAValue) and not isinstance(other.type, TensorType):
            return Refusal("the divisor is known only at run time")
        refusal = unfit(op.operands[0], self.takes_symbols)
        return refusal or _not_whole(op, other) or Lowerable(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """A quotient that is cut off or rounded down, or what it leaves."""
        x, divisor = op.operands[0], _divisor(op, b.rw.weights)
        if element(x.type) in FLOATS:
            assert not isinstance(divisor, SSAValue), "floats are divided by numbers"
            given = b.single(x)
            quotient = b.scalar(t.MulOp, given, 1 / divisor)
            down = b.unary(t.FloorOp, quotient)
            if _mode(op) == "trunc":
                up = b.unary(t.CeilOp, quotient)
                down = select(greater(0.0, quotient, b), up, down, quotient, b)
            else:  # torch's floor of inf is NaN, as inf - inf is
                nothing = b.binary(t.SubOp, given, given)
                down = select(equal(nothing, 0.0, b), down, nothing, quotient, b)
            return narrowed(down, x, b)
        y = divisor if isinstance(divisor, SSAValue) else b.splat(int(divisor), x)
        quotient = b.binary(t.IntDivOp, x, y)
        if _mode(op) == "trunc" and not isinstance(op, LowerRemainder.anchors):
            return quotient
        left = b.binary(t.SubOp, x, b.binary(t.MulOp, quotient, y))
        if _mode(op) == "trunc":
            return left
        signs = b.binary(t.LogicalXorOp, greater(0, left, b), greater(0, y, b), i1)
        some = b.unary(t.LogicalNotOp, equal(left, 0, b))
        differs = b.binary(t.LogicalAndOp, some, signs, i1)
        if isinstance(op, REMAINDERS):
            return select(differs, b.binary(t.AddOp, left, y), left, left, b)
        return select(differs, b.scalar(t.SubOp, quotient, 1), quotient, quotient, b)


def _not_whole(op: SchemaOp, other: float | SSAValue) -> Refusal | None:
    """Integers of one type by others, or floats by a power of two."""
    held = element(op.operands[0].type)
    if _mode(op) is None:
        return Refusal("its quotient is not rounded")
    if held in INTEGERS:
        if element(op.results[0].type) != held:
            return Refusal("its operands are integers, its result is not")
        if not isinstance(other, SSAValue) and not fits(other, held):
            return Refusal(f"{other} does not fit {dtype_name(held)}")
        if isinstance(other, SSAValue):
            return (
                None if element(other.type) == held else Refusal("the operands have several dtypes")
            )
        return None
    if held not in FLOATS:
        return Refusal(f"TOSA has no quotient of {dtype_name(held)}")
    if isinstance(other, SSAValue):
        return Refusal("the divisor is known only at run time: its quotient rounds")
    share, exponent = frexp(float(other))
    if abs(share) != 0.5 or abs(exponent - 1) > LARGEST_EXPONENT:
        return Refusal(f"the divisor {other} is no power of two: its quotient rounds")
    return None


def fits(number: float, held: Attribute) -> bool:
    """Whether an integer type has a number."""
    info = torch.iinfo(torch_dtype(held))
    return info.min <= number <= info.max


def _divisor(op: SchemaOp, weights: WeightStore) -> float | SSAValue:
    """The divisor; a number that stands for a tensor, or a tensor of one, as a number."""
    other = op.arg("other")
    if not isinstance(other, SSAValue):
        return other
    key = weight_key(other)
    if key is not None and weights.get(key).numel() == 1 and len(shape_of(other)) <= 1:
        return weights.get(key).item()
    if isinstance(other.type, IntType) and other.type.data.lstrip("-").isdigit():
        return int(other.type.data)
    return other


def _mode(op: SchemaOp) -> str | None:
    if isinstance(op, LowerRemainder.anchors):
        return "floor" if isinstance(op, REMAINDERS) else "trunc"
    return "floor" if isinstance(op, FLOORS) else op.arg("rounding_mode")
