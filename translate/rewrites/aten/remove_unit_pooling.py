"""Remove pooling whose windows hold one element each and touch every one: it is its operand.

XNNPACK refuses such windows, and ExecuTorch has no kernel for `aten.max_pool2d.default`.

Before:
    func.func @forward(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
      %a = aten.max_pool2d.default(%x, [1, 1]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
      %b = aten.avg_pool2d.default(%a, [1, 1], [1, 1]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
      %y = aten.neg.default(%b) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
      func.return %y : tensor<1x2x4x4xf32>
    }
After:
    func.func @forward(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
      %y = aten.neg.default(%x) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
      func.return %y : tensor<1x2x4x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand


@dataclass(frozen=True)
class RemoveUnitPooling(ForwardOperand):
    """`max_pool2d(x, 1)` and `avg_pool2d(x, 1)` to `x`."""

    name: ClassVar[str] = "remove-unit-pooling"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxPool2dDefault,
        aten.AvgPool2dDefault,
    )
    bound: ClassVar[Bound] = Bound(absolute=5e-324, reason="avg_pool2d adds to zero: −0 becomes +0")

    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """Whether elements meet, or are divided by another number.

        A stride that leaves elements out shows in the type; padding is at most half a window.
        """
        if set(op.arg("kernel_size")) != {1}:
            return True
        if isinstance(op, aten.AvgPool2dDefault) and op.arg("divisor_override") not in (None, 1):
            return Refusal("the element is divided by another number")
        return False
