"""Write exact gelu in front of a linear layer so that its one half goes into the layer's weight.

    gelu(x) = (x · (1 + erf(x/√2))) · ½

Before:
    %g = aten.gelu.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten.linear.default(%g, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
After:
    %0 = aten.mul.Scalar(%x, 0.7071067811865476) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = aten.erf.default(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = aten.add.Scalar(%1, 1.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = aten.mul.Tensor(%2, %x) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %g = aten.mul.Tensor(%3, dense<0.5>) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
    %y = aten.linear.default(%g, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import put


@dataclass(frozen=True)
class SplitGelu(Rewrite[SchemaOp]):
    """`gelu` to erf arithmetic that ends in a product with ½."""

    name: ClassVar[str] = "split-gelu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.GeluDefault,)
    bound: ClassVar[Bound] = roundings("the product is regrouped")

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: the exact form, f32, no reader but linears."""
        if op.arg("approximate") != "none":
            return Refusal("the tanh form has no factor that the layer could take")
        if element(op.results[0].type) != f32:
            return Refusal("1 + erf loses too much in float16 and bfloat16")
        users = [use.operation for use in op.results[0].uses]
        if not all(
            isinstance(user, aten.LinearDefault) and user.operands[0] is op.results[0]
            for user in users
        ):
            return Refusal("it is read by another op than a linear layer")
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """Scale, erf, add one, multiply, halve."""
        x = match.operands[0]
        curve = put(rw, aten.ErfDefault, put(rw, aten.MulScalar, x, 0.7071067811865476))
        y = put(rw, aten.MulTensor, put(rw, aten.AddScalar, curve, 1.0), x)
        y = put(rw, aten.MulTensor, y, rw.constant(torch.full([1], 0.5)))
        rw.replace(match, [y])
