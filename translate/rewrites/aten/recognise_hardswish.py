"""Recognise x·hardsigmoid(x), however it is spelled, as `aten.hardswish.default`.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.add.Scalar(%x, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %c = aten.div.Scalar(%b, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Tensor(%x, %c) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.hardswish.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class RecogniseHardswish(Respell):
    """`x * hardsigmoid(x)`, `x * clamp(x + 3, 0, 6) / 6` to `hardswish(x)`."""

    name: ClassVar[str] = "recognise-hardswish"
    bound: ClassVar[Bound] = Bound(1e-6, 0.0, "the quotient is taken before or after the product")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor, aten.DivScalar)

    def match(self, op: SchemaOp, program: Program) -> Respelled | None:
        """A product of x and its gate; divided by 6 before, after, or within the gate."""
        if element(op.results[0].type) != f32:
            return None
        product = op
        if isinstance(op, aten.DivScalar):
            owner = op.operands[0].owner
            if op.arg("other") != 6 or not isinstance(owner, aten.MulTensor):
                return None
            product = owner
        x, gate = product.operands
        for value, other in ((x, gate), (gate, x)):
            if value.type != op.results[0].type:
                continue
            if self._is_gate(other, value, divided=product is op):
                return Respelled(op, aten.HardswishDefault, {"self": value})
        return None

    def _is_gate(self, gate: SSAValue, x: SSAValue, divided: bool) -> bool:
        owner = gate.owner
        if divided:
            if isinstance(owner, aten.HardsigmoidDefault):
                return owner.operands[0] == x
            if not isinstance(owner, aten.DivScalar) or owner.arg("other") != 6:
                return False
            owner = owner.operands[0].owner
        if not isinstance(owner, aten.ClampDefault) or (owner.arg("min"), owner.arg("max")) != (
            0,
            6,
        ):
            return False
        shifted = owner.operands[0].owner
        return (
            isinstance(shifted, aten.AddScalar)
            and (shifted.arg("other"), shifted.arg("alpha")) == (3, 1)
            and shifted.operands[0] == x
        )
