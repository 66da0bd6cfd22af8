"""Merge a view of a view into one: only the last shape counts.

A permute that moves nothing but axes of size 1 is such a view too, and is spelled as one.

Before:
    %a = aten.view.default(%x, [6, 1, 4]) : (tensor<1x6x4xf32>) -> tensor<6x1x4xf32>
    %b = aten.permute.default(%a, [1, 0, 2]) : (tensor<6x1x4xf32>) -> tensor<1x6x4xf32>
    %y = aten.view.default(%b, [2, 12]) : (tensor<1x6x4xf32>) -> tensor<2x12xf32>
After:
    %y = aten.view.default(%x, [2, 12]) : (tensor<1x6x4xf32>) -> tensor<2x12xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import Dim, dims
from stepwell.ir.xdsl_private import operands_of
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    emit_as,
    same_type,
    view_op,
)


@dataclass(frozen=True)
class Reshaped:
    """`op` gives the elements of `source` in row-major order."""

    op: SchemaOp
    source: SSAValue


@dataclass(frozen=True)
class MergeViews(Rewrite[Reshaped]):
    """`view(view(x, s), t)` to `view(x, t)`; `permute` of unit axes to `view`."""

    name: ClassVar[str] = "merge-views"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ViewDefault, aten.PermuteDefault)

    def match(self, op: SchemaOp, program: Program) -> Reshaped | Refusal | None:
        """A view whose operand is a view; or a permute that keeps the order of elements."""
        source = operands_of(op)[0]
        if type(op) is aten.PermuteDefault:
            if not keeps_row_major_order(dims(source.type), op.arg("dims")):
                return None
            if sum(isinstance(size, Size) for size in dims(source.type)) > 1:
                return None  # XNNPACK permutes any number of symbolic sizes, and views one.
        elif type(inner := source.owner) is aten.ViewDefault:
            source = inner.operands[0]
        else:
            return None
        return cannot_be_viewed_as(source, dims(op.results[0].type)) or Reshaped(op, source)

    def build(self, match: Reshaped, rw: Rewriter) -> None:
        """Write one view of the source, or nothing."""
        result = match.op.results[0]
        if same_type(match.source, result):
            rw.replace(match.op, [match.source])
            return
        rw.replace(match.op, [emit_as(rw, view_op(rw, match.source, dims(result.type)), result)])


def keeps_row_major_order(shape: Sequence[Dim], order: Sequence[int]) -> bool:
    """Whether a permutation moves only axes of size 1, and is not the identity."""
    normal = [axis(d, len(shape)) for d in order]
    moving = [d for d in normal if shape[d] != 1]
    return moving == sorted(moving) and normal != sorted(normal)
