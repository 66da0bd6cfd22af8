"""Merge products with numbers that follow each other into one.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.mul.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Scalar(%a, 3.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.mul.Scalar(%x, 1.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32, f64, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class MergeScalarProducts(Respell):
    """`(x * a) * b` to `x * (a * b)`."""

    name: ClassVar[str] = "merge-scalar-products"
    bound: ClassVar[Bound] = Bound(3e-7, 0.0, "one rounding for two")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Two float products in a row, the first read by the second only; no over- or underflow."""
        inner = op.operands[0].owner
        if not isinstance(inner, aten.MulScalar) or len(list(inner.results[0].uses)) != 1:
            return None
        value = inner.operands[0]
        if element(value.type) not in (f32, f64):
            return None
        first, second = inner.arg("other"), op.arg("other")
        if not isinstance(first, int | float) or not isinstance(second, int | float):
            return None
        limits = torch.finfo(torch_dtype(element(value.type)))
        product = float(first) * float(second)
        low, high = limits.tiny**0.5, limits.max**0.5
        if not low <= abs(product) <= high or not low <= abs(first) <= high:
            return Refusal(f"{first}·{second} may overflow or underflow where the steps do not")
        return Respelled(op, aten.MulScalar, {"self": value, "other": product})
