"""Move a multiplication by a number ahead of the layout ops it follows, towards a linear layer.

Layout ops move elements and change none, so the products are the same numbers. Ahead of them the
factor can be folded into the weights of the projection that made the tensor.

Before:
    %p = aten.permute.default(%x, [1, 0]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %y = aten.mul.Scalar(%p, 0.5) : (tensor<4x2xf32>) -> tensor<4x2xf32>
After:
    %s = aten.mul.Scalar(%x, 0.5) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten.permute.default(%s, [1, 0]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.attention.attention_pattern import constant_factor


@dataclass(frozen=True)
class ScaledLayout:
    """`scale(layout(x))`, to be written as `layout(scale(x))`."""

    scale: SchemaOp
    layout: SchemaOp


@dataclass(frozen=True)
class HoistScaleOverLayout(Rewrite[ScaledLayout]):
    """`view(x) * s` to `view(x * s)`, likewise for permute and slice."""

    name: ClassVar[str] = "hoist-scale-over-layout"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar,)

    def match(self, op: SchemaOp, program: Program) -> ScaledLayout | Refusal | None:
        """Guards: a number, the same dtype after, a layout op that only this op reads."""
        layout = op.operands[0].owner
        if not isinstance(layout, aten.ViewDefault | aten.PermuteDefault):
            return None
        if constant_factor(op) is None:
            return None
        if isinstance(layout.operands[0].owner, WeightOp):
            return None
        if not layout.results[0].has_one_use():
            return Refusal("the tensor is read without the factor too")
        return ScaledLayout(op, layout)

    def build(self, match: ScaledLayout, rw: Rewriter) -> None:
        """Scale the layout op's operand, then lay out."""
        layout = match.layout
        source = layout.operands[0]
        scaled = aten.MulScalar.make(source, match.scale.arg("other"), result_types=[source.type])
        copied = layout.clone()
        rw.insert(scaled, layout)
        copied.operands[0] = scaled.results[0]
        rw.insert(copied)
        copied.location = layout.location
        rw.replace(match.scale, copied.results)
