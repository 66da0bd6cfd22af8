"""A clamp behind a node that can clamp its own output becomes the node's range.

Before:
    %a = xnnpack.add(%x, %z) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = xnnpack.clamp(%a, output_min=0.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %y = xnnpack.add(%x, %z, output_min=0.0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter


@dataclass(frozen=True)
class ClampedNode:
    """A clamp that is the only reader of a node which can clamp its own output."""

    clamp: XnnpackOp
    node: XnnpackOp


@dataclass(frozen=True)
class FuseClamp(Rewrite[ClampedNode]):
    """A clamp behind a node becomes the node's output range."""

    name: ClassVar[str] = "fuse-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.Clamp,)

    def match(self, op: XnnpackOp, program: Program) -> ClampedNode | Refusal | None:
        """Guards: the node has an output range that is not set, and no other reader."""
        node = op.operands[0].owner
        if not isinstance(node, XnnpackOp):
            return None
        if "output_min" not in node.get_irdl_definition().properties:
            return None
        if node.output_range is not None:
            return Refusal(f"{node.name} clamps its output already")
        if not node.output.has_one_use():
            return Refusal(f"{node.name} is read without the clamp too")
        if node.output.type != op.output.type:
            return Refusal("the clamp also changes the type")
        return ClampedNode(op, node)

    def build(self, match: ClampedNode, rw: Rewriter) -> None:
        """Set the range in place."""
        for name in ("output_min", "output_max"):
            if name in match.clamp.properties:
                match.node.properties[name] = match.clamp.properties[name]
        match.node.output.name_hint = match.clamp.output.name_hint
        rw.replace(match.clamp, [match.node.output])
        rw.changed(match.node)
