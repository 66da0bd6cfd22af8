"""`logical_and` and its kin on numbers: what is not zero is true.

Before:
    %y = aten.logical_not.default(%x) : (tensor<4xf32>) -> tensor<4xi1>
After:
    %0 = tosa.equal %x, dense<0.0> : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xi1>
    %1 = tosa.logical_not %0 : (tensor<4xi1>) -> tensor<4xi1>
    %y = tosa.logical_not %1 : (tensor<4xi1>) -> tensor<4xi1>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.dtypes import dtype_name, i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder
from stepwell.translate.rewrites.tosa.lower_cast import compares, converted
from stepwell.translate.rewrites.tosa.lowering import Lowerable, LowerToTosa

OPERATORS: dict[type[Operation], type[TosaOp]] = {
    aten.LogicalNotDefault: t.LogicalNotOp,
    aten.LogicalAndDefault: t.LogicalAndOp,
    aten.LogicalOrDefault: t.LogicalOrOp,
    aten.LogicalXorDefault: t.LogicalXorOp,
}


ARITHMETIC: dict[type[Operation], type[TosaOp]] = {
    aten.MulTensor: t.LogicalAndOp,
    aten.MinimumDefault: t.LogicalAndOp,
    aten.MaximumDefault: t.LogicalOrOp,
    aten.NeTensor: t.LogicalXorOp,
    aten.EqTensor: t.LogicalXorOp,
}
"""What arithmetic and comparisons of truth values are; equality is the negative."""


@dataclass(frozen=True)
class LowerTruthArithmetic(LowerToTosa):
    """Products, extremes and equality of truth values."""

    name: ClassVar[str] = "lower-truth-arithmetic-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *ARITHMETIC,
        aten.EqScalar,
        aten.NeScalar,
    )
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Truth values alone, or beside 0 or 1."""
        types = [value.type for value in op.operands]
        if not all(isinstance(type_, TensorType) and element(type_) == i1 for type_ in types):
            return None
        if len(types) == 1 and op.arg("other") not in (0, 1):
            return Refusal("a truth value is compared with a number that is neither 0 nor 1")
        return super().match(op, program)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One logical operator, and LOGICAL_NOT for equality."""
        x = op.operands[0]
        if len(op.operands) == 1:
            is_same = (op.arg("other") == 1) == isinstance(op, aten.EqScalar)
            return x if is_same else b.unary(t.LogicalNotOp, x)
        y = b.binary(ARITHMETIC[type(op)], x, op.operands[1], i1)
        return b.unary(t.LogicalNotOp, y) if isinstance(op, aten.EqTensor) else y


@dataclass(frozen=True)
class LowerTruth(LowerToTosa):
    """Logical operators on numbers."""

    name: ClassVar[str] = "lower-truth-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(OPERATORS)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Some operand holds numbers; of truth values alone the operator is TOSA's own."""
        types = [value.type for value in op.operands]
        if all(isinstance(type_, TensorType) and element(type_) == i1 for type_ in types):
            return None
        for type_ in types:
            if isinstance(type_, TensorType) and not compares(element(type_)):
                return Refusal(f"TOSA compares no {dtype_name(element(type_))}")
        return super().match(op, program)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Comparisons with zero, then the operator."""
        first, *others = (converted(value, i1, b) for value in op.operands)
        cls = OPERATORS[type(op)]
        return b.binary(cls, first, others[0], i1) if others else b.unary(cls, first)
