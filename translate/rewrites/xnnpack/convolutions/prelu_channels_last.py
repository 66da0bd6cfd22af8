"""Slopes per channel stand on the last axis, where XNNPACK's prelu has them.

The transposes around it meet those around a convolution and vanish (`assign-layouts`).

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %y = aten.prelu.default(%x, %w) : (tensor<2x4x3xf32>, tensor<4xf32>) -> tensor<2x4x3xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %0 = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
    %1 = xnnpack.prelu(%0, %w) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
    %y = aten.permute.default(%1, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import permute
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack


@dataclass(frozen=True)
class PreluChannelsLast(Rewrite[SchemaOp]):
    """`prelu` of `[N, C, …]` to one of `[N, …, C]` between permutes."""

    name: ClassVar[str] = "prelu-channels-last"
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a zero keeps its sign or takes that of the slope")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PreluDefault,)

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: floats, constant slopes, one for each of the second of three axes or more."""
        slopes = dims(op.operands[1].type)
        if len(dims(op.operands[0].type)) < 3 or len(slopes) != 1 or slopes == (1,):
            return None
        return not_for_xnnpack(op) or not_constant(op.operands[1], "slopes") or op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """Channels last, the node, channels second."""
        op = match
        rank = len(dims(op.operands[0].type))
        last = permute(rw, op.operands[0], [0, *range(2, rank), 1])
        new = xnnpack.PReLU.make(last, op.operands[1], result=last.type)
        made = rw.insert(new).results[0]
        rw.replace(op, [permute(rw, made, [0, rank - 1, *range(1, rank - 1)])])
