"""Fusion: a clamp after a node that can clamp its own output becomes the node's output range.

rule fuse-clamp
    The node with the range, where it stood.
Before:
    %a = $node of RANGED(%x, …)
    %y = xnnpack.clamp(%a, output_min=$low, output_max=$high) : (…) -> $T
After:
    %a = $node(%x, …, output_min=$low, output_max=$high)
    %y = itself(%a)
unless clamps_already(%a)
where reads_once(%a) for cost else "what it clamps is read without the clamp too"
where are_of_one_type(%a, %y) else "the clamp also changes the type"
for $node = "xnnpack.add", $low = 0.0, $high = none, %right = "tensor<2x3xf32>"
not for $output_max = 1.0
not for $T = "tensor<2x3x!quant.uniform<i8:f32, 0.25>>", %x = "tensor<2x3x!quant.uniform<i8:f32, 0.5>>", %right = "tensor<2x3x!quant.uniform<i8:f32, 0.5>>"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.xnnpack import Xnnpack, XnnpackOp
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rules import read_rules

RANGED = tuple(
    op
    for op in Xnnpack.operations
    if issubclass(op, XnnpackOp) and "output_min" in op.get_irdl_definition().properties
)
"""Nodes that can clamp their result."""


def clamps_already(value: SSAValue) -> Refusal | None:
    """Refuse a node that has an output range already."""
    node = cast(XnnpackOp, value.owner)
    return None if node.output_range is None else Refusal(f"{node.name} clamps its output already")


(FuseClamp,) = RULES = read_rules(__doc__, globals())
