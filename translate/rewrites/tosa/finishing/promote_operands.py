"""Operands of several element types in the one that torch computes with.

Before:
    %y = aten.mul.Tensor(%x, %n) : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
After:
    %0 = aten._to_copy.default(%n, dtype=f32) : (tensor<4xi32>) -> tensor<4xf32>
    %y = aten.mul.Tensor(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import element_type, has_torch_dtype, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import cast

WITH_NUMBERS = (aten.AddScalar, aten.SubScalar, aten.RsubScalar, aten.MulScalar, aten.DivScalar)
"""Arithmetic with a number, which makes floats of integers if it is a fraction."""


@dataclass(frozen=True)
class Mixed:
    """An op, and the element type that its operands have in common."""

    op: SchemaOp
    common: Attribute


@dataclass(frozen=True)
class PromoteOperands(Rewrite[Mixed]):
    """Sums, products, comparisons, choices and concatenations of several element types."""

    name: ClassVar[str] = "promote-operands"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *WITH_NUMBERS,
        aten.AddTensor,
        aten.SubTensor,
        aten.MulTensor,
        aten.DivTensor,
        aten.MaximumDefault,
        aten.MinimumDefault,
        aten.PowTensorTensor,
        aten.Atan2Default,
        aten.EqTensor,
        aten.NeTensor,
        aten.LtTensor,
        aten.LeTensor,
        aten.GtTensor,
        aten.GeTensor,
        aten.WhereSelf,
        aten.CatDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Mixed | Refusal | None:
        """Tensors of several types that torch has; a quotient of integers is one of floats."""
        values = _promoted(op)
        held = {element(v.type) for v in values if isinstance(v.type, TensorType)}
        if not all(
            isinstance(v.type, TensorType) and has_torch_dtype(element(v.type)) for v in values
        ):
            return None
        if isinstance(op, (aten.DivTensor, *WITH_NUMBERS)):
            common = element(op.results[0].type)
        else:
            common = element_type(reduce(_common, map(_of_type, values)).dtype)
        return Mixed(op, common) if held != {common} else None

    def build(self, match: Mixed, rw: Rewriter) -> None:
        """Conversions in front of the op."""
        op, first = match.op, 1 if isinstance(match.op, aten.WhereSelf) else 0
        for number in range(first, len(op.operands)):
            value = op.operands[number]
            if element(value.type) == match.common:
                continue
            rw.set_operand(op, number, cast(rw, value, match.common))


def _promoted(op: SchemaOp) -> list[SSAValue]:
    """The operands whose types count."""
    return list(op.operands[1:] if isinstance(op, aten.WhereSelf) else op.operands)


def _of_type(value: SSAValue) -> torch.Tensor:
    """A tensor of the type: torch asks whether it is a single number."""
    return torch.empty(
        [1] * len(dims(value.type)), dtype=torch_dtype(element(value.type)), device="meta"
    )


def _common(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    shape = one.shape if one.dim() else other.shape
    return torch.empty(shape, dtype=torch.result_type(one, other), device="meta")
