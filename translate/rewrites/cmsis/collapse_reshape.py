"""A reshape of a reshape is one view, and a reshape to the same shape is none.

Before:
    %a = aten.squeeze.dims(%x, [2, 3]) : (tensor<1x8x1x1xi8>) -> tensor<1x8xi8>
    %b = aten.flatten.using_ints(%a) : (tensor<1x8xi8>) -> tensor<8xi8>
After:
    %b = aten.view.default(%x, [8]) : (tensor<1x8x1x1xi8>) -> tensor<8xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, is_static
from stepwell.translate.rewrites.cmsis.reshape import VIEW
from stepwell.translate.rewrites.quant.movement import MOVEMENT


@dataclass(frozen=True)
class Reshape:
    """A reshape and the value whose elements it gives, in their order."""

    op: SchemaOp
    source: SSAValue


@dataclass(frozen=True)
class CollapseReshape(Rewrite[Reshape]):
    """reshape(reshape(x)) → view(x)."""

    name: ClassVar[str] = "collapse-reshape"
    anchors: ClassVar[tuple[type[Operation], ...]] = MOVEMENT

    def match(self, op: SchemaOp, program: Program) -> Reshape | Refusal | None:
        """Shapes are known, and there is a reshape above or nothing to change."""
        if not only_reshapes(op) or not is_static(op.results[0].type):
            return None
        source = op.operands[0]
        while only_reshapes(source.owner):
            source = source.owner.operands[0]
        changes = source is not op.operands[0] or source.type == op.results[0].type
        return Reshape(op, source) if changes else None

    def build(self, match: Reshape, rw: Rewriter) -> None:
        """One view, or the value itself."""
        result = match.op.results[0]
        if match.source.type == result.type:
            rw.replace(match.op, [match.source])
            return
        arguments = {"self": match.source, "size": list(dims(result.type))}
        rw.replace(match.op, rw.insert(VIEW.from_arguments(arguments, [result.type])).results)
