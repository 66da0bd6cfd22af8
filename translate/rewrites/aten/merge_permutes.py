"""Merge a permute of a permute into one.

Before:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x4x2xf32> {
      %a = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
      %y = aten.permute.default(%a, [2, 1, 0]) : (tensor<2x4x3xf32>) -> tensor<3x4x2xf32>
      func.return %y : tensor<3x4x2xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x4x2xf32> {
      %y = aten.permute.default(%x, [1, 2, 0]) : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
      func.return %y : tensor<3x4x2xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.translate.rewrites.aten.building import axis, emit_as


@dataclass(frozen=True)
class PermuteOfPermute:
    """The outer permute, and what it is of the inner one's operand."""

    op: SchemaOp
    source: SSAValue
    order: tuple[int, ...]


@dataclass(frozen=True)
class MergePermutes(Rewrite[PermuteOfPermute]):
    """`permute(permute(x, p), q)` to `permute(x, p∘q)`, or to `x` where that is the identity."""

    name: ClassVar[str] = "merge-permutes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PermuteDefault,)

    def match(self, op: SchemaOp, program: Program) -> PermuteOfPermute | None:
        """Two permutes in a row; the inner one may have other users, which keep it."""
        inner = op.operands[0].owner
        if not isinstance(inner, aten.PermuteDefault):
            return None
        first, second = inner.arg("dims"), op.arg("dims")
        rank = len(first)
        order = tuple(axis(first[axis(d, rank)], rank) for d in second)
        return PermuteOfPermute(op, inner.operands[0], order)

    def build(self, match: PermuteOfPermute, rw: Rewriter) -> None:
        """Write one permute of the inner operand, or nothing."""
        result = match.op.results[0]
        if match.order == tuple(range(len(match.order))):
            rw.replace(match.op, [match.source])
            return
        new = aten.PermuteDefault.make(match.source, list(match.order), result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])
