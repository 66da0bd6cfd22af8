"""Spell `lerp` with a number as weight by the sum and product that torch computes.

torch starts from the nearer end: `a + w·(b − a)` below one half, `b − (b − a)·(1 − w)` above. Its
decomposition asks for the weight at run time; a number is known now.

Before:
    func.func @forward(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.lerp.Scalar(%a, %b, 0.25) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %d = aten.sub.Tensor(%b, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %p = aten.mul.Scalar(%d, 0.25) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.add.Tensor(%a, %p) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
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
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as


@dataclass(frozen=True)
class Lerp:
    """A linear interpolation by a number."""

    op: SchemaOp
    weight: float


@dataclass(frozen=True)
class LerpToProducts(Rewrite[Lerp]):
    """`aten.lerp.Scalar` to sub, mul and add."""

    name: ClassVar[str] = "lerp-to-products"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LerpScalar,)
    bound: ClassVar[Bound] = Bound(1e-6, 1e-6, "torch may contract the product and the sum")

    def match(self, op: SchemaOp, program: Program) -> Lerp | Refusal | None:
        """f32 and a weight that is a number."""
        weight = op.arg("weight")
        if isinstance(weight, SSAValue):
            return Refusal("the weight is known only at run time")
        if element(op.operands[0].type) != f32:
            return Refusal("the error bound of this rewrite holds for float32 only")
        return Lerp(op, float(weight))

    def build(self, match: Lerp, rw: Rewriter) -> None:
        """From the nearer end."""
        start, end = match.op.operands
        result = match.op.results[0]
        types = [result.type]
        way = emit(rw, aten.SubTensor.make(end, start, result_types=types))
        if abs(match.weight) < 0.5:
            part = emit(rw, aten.MulScalar.make(way, match.weight, result_types=types))
            value = aten.AddTensor.make(start, part, result_types=types)
        else:
            part = emit(rw, aten.MulScalar.make(way, 1 - match.weight, result_types=types))
            value = aten.SubTensor.make(end, part, result_types=types)
        rw.replace(match.op, [emit_as(rw, value, result)])
