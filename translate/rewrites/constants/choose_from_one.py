"""`topk` of rows of one element takes it, at place 0: groups of experts of which there is one.

Routers that are limited to some groups of experts are often configured with a single group. What is
known of its place decides the masks behind it while lowering.

Before:
    %v, %i = aten.topk.default(%x, 1) : (tensor<3x1xf32>) -> (tensor<3x1xf32>, tensor<3x1xi64>)
    func.return %v, %i : tensor<3x1xf32>, tensor<3x1xi64>
After:
    %i = aten.full.default([3, 1], 0, dtype=i64) : () -> tensor<3x1xi64>
    func.return %x, %i : tensor<3x1xf32>, tensor<3x1xi64>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import i64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import axis, emit_as, static_dims


@dataclass(frozen=True)
class OnlyOne:
    """A choice of the only element of each row."""

    op: SchemaOp
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ChooseFromOne(Rewrite[OnlyOne]):
    """`topk(x, 1)` along an axis of size 1 to `x` and zeros."""

    name: ClassVar[str] = "choose-from-one"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.TopkDefault,)

    def match(self, op: SchemaOp, program: Program) -> OnlyOne | Refusal | None:
        """Guards: known sizes, one element along the axis, which is taken."""
        shape = static_dims(op.operands[0])
        if not shape or shape[axis(op.arg("dim"), len(shape))] != 1 or op.arg("k") != 1:
            return None
        return OnlyOne(op, shape)

    def build(self, match: OnlyOne, rw: Rewriter) -> None:
        """The operand, and as many zeros."""
        places = match.op.results[1]
        zeros = aten.FullDefault.make(list(match.shape), 0, dtype=i64, result_types=[places.type])
        rw.replace(match.op, [match.op.operands[0], emit_as(rw, zeros, places)])
