"""Bitwise operators on integers of 8, 16 and 32 bits: BITWISE_AND and its kin.

Before:
    %y = aten.bitwise_and.Scalar(%x, 6) : (tensor<4xi32>) -> tensor<4xi32>
After:
    %y = tosa.bitwise_and %x, dense<6> : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.dtypes import i8, i16, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder
from stepwell.translate.rewrites.tosa.lowering import Lowerable, LowerToTosa, is_scalar

INTEGERS = (i8, i16, i32)
OPERATORS: dict[type[Operation], type[TosaOp]] = {
    aten.BitwiseNotDefault: t.BitwiseNotOp,
    aten.BitwiseAndTensor: t.BitwiseAndOp,
    aten.BitwiseOrTensor: t.BitwiseOrOp,
    aten.BitwiseXorTensor: t.BitwiseXorOp,
    aten.BitwiseAndScalar: t.BitwiseAndOp,
    aten.BitwiseOrScalar: t.BitwiseOrOp,
    aten.BitwiseXorScalar: t.BitwiseXorOp,
    **{
        op_class(f"aten.__{word}__.{kind}"): cls
        for word, cls in (("and", t.BitwiseAndOp), ("or", t.BitwiseOrOp), ("xor", t.BitwiseXorOp))
        for kind in ("Tensor", "Scalar")
    },
}


@dataclass(frozen=True)
class LowerBits(LowerToTosa):
    """`bitwise_and`, `or`, `xor`, `not` of integers, and Python's operators for them."""

    name: ClassVar[str] = "lower-bits-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(OPERATORS)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Integers of at most 32 bits; those of truth values are logical operators."""
        if any(element(value.type) not in INTEGERS for value in (op.operands[0], *op.results)):
            return None
        return super().match(op, program)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Two integers of one type, numbers that are known."""
        if any(map(is_scalar, op.operands)):
            return Refusal("the number is known only at run time")
        if len({element(value.type) for value in (*op.operands, *op.results)}) > 1:
            return Refusal("the operands have several dtypes")
        number = op.arg("other") if "other" in op.SCHEMA.by_name else None
        if isinstance(number, int) and not -(1 << 31) <= number < 1 << 31:
            return Refusal(f"{number} does not fit int32")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One operator."""
        x, cls = op.operands[0], OPERATORS[type(op)]
        if cls is t.BitwiseNotOp:
            return b.unary(cls, x)
        if len(op.operands) == 2:
            return b.binary(cls, x, op.operands[1])
        return b.scalar(cls, x, op.arg("other"))
