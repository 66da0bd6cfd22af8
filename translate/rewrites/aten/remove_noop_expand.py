"""Remove an expand to the shape its operand has.

`scaled_dot_product_attention` and `matmul` decompose to four expands that repeat nothing. XNNPACK
has no expand: in DeiT-Tiny 48 of them stand outside delegates and split every attention in pieces.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.expand.default(%x, [2, 3]) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.expand_copy.default(%a, [-1, 3]) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.neg.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand


@dataclass(frozen=True)
class RemoveNoopExpand(ForwardOperand):
    """`expand(x, x.shape)` to `x`."""

    name: ClassVar[str] = "remove-noop-expand"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ExpandDefault,
        aten.ExpandCopyDefault,
        aten.ExpandAsDefault,
        aten.BroadcastToDefault,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> bool:
        """None: an expand whose result has the operand's type repeats nothing."""
        return False
