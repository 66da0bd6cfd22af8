"""Write out the factor of `add`, `sub` and `rsub`, and the order of `rsub`.

`add(x, y, alpha=a)` is x + a·y. Where a is a power of two the product is exact; elsewhere torch
may contract it into one rounding, so that results differ by one rounding of a·y.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %a = aten.add.Tensor(%x, %y, alpha=3) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.rsub.Tensor(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %0 = aten.mul.Scalar(%y, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %a = aten.add.Tensor(%x, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.sub.Tensor(%y, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as


@dataclass(frozen=True)
class Scaled:
    """`form(first, second * alpha)`."""

    op: SchemaOp
    form: type[SchemaOp]
    first: SSAValue
    second: SSAValue
    alpha: int | float


@dataclass(frozen=True)
class SplitAlpha(Rewrite[Scaled]):
    """`x ± alpha·y` to `x ± (y * alpha)`, `rsub(x, y)` to `y - x`."""

    name: ClassVar[str] = "split-alpha"
    bound: ClassVar[Bound] = Bound(1e-6, 1e-6, "the product is rounded on its own")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AddTensor,
        aten.SubTensor,
        aten.RsubTensor,
    )

    def match(self, op: SchemaOp, program: Program) -> Scaled | Refusal | None:
        """The factor is a number; sums without one are in normal form."""
        alpha = op.arg("alpha")
        if isinstance(alpha, SSAValue | complex):
            return Refusal("alpha is complex, or known only at run time")
        is_reversed = isinstance(op, aten.RsubTensor)
        if not is_reversed and "alpha" not in op.properties:
            return None
        x, y = op.operands[0], op.operands[1]
        if alpha != 1 and (element(x.type) != element(y.type) or element(x.type) == i1):
            return Refusal("the operands have several dtypes, and alpha is not 1")
        form = aten.AddTensor if isinstance(op, aten.AddTensor) else aten.SubTensor
        first, second = (y, x) if is_reversed else (x, y)
        return Scaled(op, form, first, second, alpha)

    def build(self, match: Scaled, rw: Rewriter) -> None:
        """Write the product, unless the factor is 1, and the sum."""
        result, scaled = match.op.results[0], match.second
        if match.alpha != 1:
            product = aten.MulScalar.make(scaled, match.alpha, result_types=[scaled.type])
            scaled = emit(rw, product)
        new = match.form.make(match.first, scaled, result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])
