"""Take axes of size one out of a permute when the view behind it drops them anyway.

A slice of a fused projection leaves `[1, 197, 1, 3, 64]` → permute → `[1, 1, 3, 197, 64]` → view
`[1, 3, 197, 64]`: without the axes that vanish the last view is gone and the first one merges with
the view before it.

Before:
    %p = aten.permute.default(%x, [1, 2, 0]) : (tensor<2x1x3xf32>) -> tensor<1x3x2xf32>
    %y = aten.view.default(%p, [3, 2]) : (tensor<1x3x2xf32>) -> tensor<3x2xf32>
After:
    %v = aten.view.default(%x, [2, 3]) : (tensor<2x1x3xf32>) -> tensor<2x3xf32>
    %y = aten.permute.default(%v, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.alignment import dropped_units
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis, permute, view


@dataclass(frozen=True)
class SqueezedPermute:
    """A view that drops unit axes of a permute; `dropped` are axes of the permute's operand."""

    op: SchemaOp
    layout: SchemaOp
    dropped: frozenset[int]


@dataclass(frozen=True)
class SqueezePermute(Rewrite[SqueezedPermute]):
    """`view(permute(x))` to `permute(view(x))` where the view only drops axes of size one."""

    name: ClassVar[str] = "squeeze-permute"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ViewDefault,)

    def match(self, op: SchemaOp, program: Program) -> SqueezedPermute | Refusal | None:
        """Guards: the view only drops unit axes, and the permute has no other reader."""
        layout = op.operands[0].owner
        if not isinstance(layout, aten.PermuteDefault):
            return None
        dropped = dropped_units(dims(op.operands[0].type), dims(op.results[0].type))
        if not dropped:
            return None
        if not layout.results[0].has_one_use():
            return Refusal("the permute is read with its unit axes too")
        rank = len(dims(layout.operands[0].type))
        order = [axis(d, rank) for d in layout.arg("dims")]
        return SqueezedPermute(op, layout, frozenset(order[i] for i in dropped))

    def build(self, match: SqueezedPermute, rw: Rewriter) -> None:
        """Drop the axes first, then permute those that are left."""
        source = match.layout.operands[0]
        shape = dims(source.type)
        kept = [i for i in range(len(shape)) if i not in match.dropped]
        rank = len(shape)
        order = [axis(d, rank) for d in match.layout.arg("dims")]
        value = view(rw, source, [shape[i] for i in kept])
        value = permute(rw, value, [kept.index(d) for d in order if d in kept])
        rw.replace(match.op, [value])
