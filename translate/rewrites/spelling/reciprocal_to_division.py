"""Spell `reciprocal` as one divided by the tensor, which is how it is computed.

Before:
    %y = aten.reciprocal.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %y = aten.div.Tensor(dense<1.0>, %x) : (tensor<1xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.numerics import Deviation, flushes
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import become
from stepwell.translate.values import is_away_from_zero


@dataclass(frozen=True)
class ReciprocalToDivision(Rewrite[SchemaOp]):
    """`aten.reciprocal` to `aten.div` with a constant one."""

    name: ClassVar[str] = "reciprocal-to-division"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReciprocalDefault,)

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """The dtype stays: integers become floats first."""
        held, given = element(op.operands[0].type), element(op.results[0].type)
        if held != given:
            return Refusal(f"the reciprocal of {held} is {given}")
        if not torch_dtype(held).is_floating_point:
            return Refusal("the reciprocal is complex")
        return op

    def deviates(self, match: SchemaOp, program: Program) -> Deviation | None:
        """An engine that takes a denormal number for zero gives infinity for its reciprocal."""
        if not flushes(program.context) or is_away_from_zero(match.operands[0], program):
            return None
        return Deviation("the reciprocal of a denormal number becomes that of zero, an infinity")

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The constant and the division."""
        x = match.operands[0]
        rank = 1 if dims(x.type) else 0
        one = rw.weight(rw.weights.number(1.0, torch_dtype(element(x.type)), rank))
        become(rw, match, aten.DivTensor, one, x)
