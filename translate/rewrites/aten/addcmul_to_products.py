"""Spell `addcmul` and `addcdiv` by a product or quotient and a sum.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %a: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> {
      %y = aten.addcmul.default(%x, %a, %b, value=0.5) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %a: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> {
      %0 = aten.mul.Scalar(%a, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %1 = aten.mul.Tensor(%0, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      %y = aten.add.Tensor(%x, %1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as, promotes


@dataclass(frozen=True)
class AddedProduct:
    """`x + value * form(a, b)`."""

    op: SchemaOp
    form: type[SchemaOp]
    value: int | float


@dataclass(frozen=True)
class AddcmulToProducts(Rewrite[AddedProduct]):
    """`addcmul(x, a, b, value)` to `x + value * a * b`; `addcdiv` likewise."""

    name: ClassVar[str] = "addcmul-to-products"
    bound: ClassVar[Bound] = Bound(1e-6, 1e-6, "the product is rounded on its own")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddcmulDefault, aten.AddcdivDefault)

    def match(self, op: SchemaOp, program: Program) -> AddedProduct | Refusal | None:
        """All tensors have one dtype and the factor is a number."""
        value = op.arg("value")
        if isinstance(value, SSAValue | complex):
            return Refusal("value is complex, or known only at run time")
        if any(element(v.type) != element(op.results[0].type) for v in op.operands):
            return Refusal("the operands have several dtypes")
        if refusal := promotes(value, element(op.results[0].type)):
            return refusal
        form = aten.MulTensor if isinstance(op, aten.AddcmulDefault) else aten.DivTensor
        return AddedProduct(op, form, value)

    def build(self, match: AddedProduct, rw: Rewriter) -> None:
        """Write the factor, the product or quotient, and the sum."""
        x, a, b = match.op.operands[:3]
        result = match.op.results[0]
        if match.value != 1:  # First, as torch does: the product may overflow without it.
            a = emit(rw, aten.MulScalar.make(a, match.value, result_types=[a.type]))
        value = emit(rw, match.form.make(a, b))
        new = aten.AddTensor.make(x, value, result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])
