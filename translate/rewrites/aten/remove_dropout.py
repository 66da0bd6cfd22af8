"""Remove dropout that does not drop: in evaluation mode, or with probability 0.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.dropout.default(%x, 0.5, false) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b, %m = aten.native_dropout.default(%a, 0.5, false) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>)
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
from stepwell.ir.rewriting import Refusal, Rewriter
from stepwell.translate.rewrites.aten.forwarding import Forwarded, ForwardOperand


@dataclass(frozen=True)
class RemoveDropout(ForwardOperand):
    """`dropout(x, p, train=False)` to `x`."""

    name: ClassVar[str] = "remove-dropout"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.DropoutDefault,
        aten.FeatureDropoutDefault,
        aten.AlphaDropoutDefault,
        aten.FeatureAlphaDropoutDefault,
        aten.NativeDropoutDefault,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """Whether random numbers are drawn, or the mask is wanted too."""
        if op.arg("train") is not False and op.arg("p") != 0:
            return Refusal("exported in training mode: it draws random numbers; call model.eval()")
        if any(mask.uses for mask in op.results[1:]):
            return Refusal("the dropout mask is used")
        return False

    def build(self, match: Forwarded, rw: Rewriter) -> None:
        """Let users of the first result read the operand."""
        rw.replace_value(match.op.results[0], match.value)
        rw.erase(match.op)
