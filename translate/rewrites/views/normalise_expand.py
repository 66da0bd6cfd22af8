"""Spell every broadcast as one `aten.expand.default` with its sizes written out.

An expand of an expand is one expand. Axes that it adds in front are added by a view first, so
that an expand only ever repeats axes of size 1.

Before:
    %a = aten.expand_copy.default(%x, [4, -1]) : (tensor<1x3xf32>) -> tensor<4x3xf32>
    %y = aten.broadcast_to.default(%a, [5, 4, 3]) : (tensor<4x3xf32>) -> tensor<5x4x3xf32>
After:
    %0 = aten.view.default(%x, [1, 1, 3]) : (tensor<1x3xf32>) -> tensor<1x1x3xf32>
    %y = aten.expand.default(%0, [5, 4, 3]) : (tensor<1x1x3xf32>) -> tensor<5x4x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import (
    become,
    cannot_be_viewed_as,
    same_type,
    static_dims,
    view,
)


@dataclass(frozen=True)
class Broadcast:
    """`source`, seen as `shape` (of the result's rank), repeated to the result's shape."""

    op: SchemaOp
    source: SSAValue
    shape: tuple[Dim, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class NormaliseExpand(Rewrite[Broadcast]):
    """Any broadcast to `aten.expand.default` of equal rank and static sizes."""

    name: ClassVar[str] = "normalise-expand"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ExpandDefault,
        aten.ExpandCopyDefault,
        aten.ExpandAsDefault,
        aten.BroadcastToDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Broadcast | Refusal | None:
        """The result is static; an expand in normal form of no other expand is left alone."""
        result, source = op.results[0], op.operands[0]
        if same_type(source, result):
            return None
        sizes = static_dims(result)
        if sizes is None:
            return Refusal("the expanded shape is symbolic")
        inner = source.owner
        merges = isinstance(inner, aten.ExpandDefault)
        source = inner.operands[0] if merges else source
        held = dims(source.type)
        shape = (1,) * (len(sizes) - len(held)) + held
        normal = isinstance(op, aten.ExpandDefault) and op.arg("size") == list(sizes)
        if normal and not merges and shape == held and "implicit" not in op.properties:
            return None
        return cannot_be_viewed_as(source, shape) or Broadcast(op, source, shape, sizes)

    def build(self, match: Broadcast, rw: Rewriter) -> None:
        """Write the view, if the rank grows, and the expand, if anything is repeated."""
        result = match.op.results[0]
        value = view(rw, match.source, match.shape)
        if same_type(value, result):
            rw.replace(match.op, [value])
            return
        become(rw, match.op, aten.ExpandDefault, value, list(match.sizes))
