"""A batch norm whose statistics or weights the run computes: products and sums.

Before:
    %y = aten.batch_norm.default(%x, none, none, %m, %v, false, 0.1, 1.0, false) : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x4xf32>
After:
    %0 = aten.view.default(%m, [1, 3, 1]) : (tensor<3xf32>) -> tensor<1x3x1xf32>
    %1 = aten.view.default(%v, [1, 3, 1]) : (tensor<3xf32>) -> tensor<1x3x1xf32>
    %2 = aten.add.Scalar(%1, 1.0) : (tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
    %3 = aten.rsqrt.default(%2) : (tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
    %4 = aten.sub.Tensor(%x, %0) : (tensor<2x3x4xf32>, tensor<1x3x1xf32>) -> tensor<2x3x4xf32>
    %y = aten.mul.Tensor(%4, %3) : (tensor<2x3x4xf32>, tensor<1x3x1xf32>) -> tensor<2x3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import put, static_dims, view


@dataclass(frozen=True)
class Normalised:
    """A batch norm in evaluation mode of a tensor of this shape."""

    op: SchemaOp
    shape: tuple[int, ...]


@dataclass(frozen=True)
class BatchNormToProducts(Rewrite[Normalised]):
    """`batch_norm` to (x - mean) · (rsqrt(variance + eps) · weight) + bias."""

    name: ClassVar[str] = "batch-norm-to-products-to-tosa"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BatchNormDefault,)
    bound: ClassVar[Bound] = roundings("the scale is computed first")

    def match(self, op: SchemaOp, program: Program) -> Normalised | Refusal | None:
        """Evaluation mode, something that no weight holds, known sizes."""
        if op.arg("training"):
            return None
        if all(weight_key(value) is not None for value in op.operands[1:]):
            return None
        held = element(op.operands[0].type)
        if any(element(value.type) != held for value in op.operands[1:]):
            return Refusal("the parameters are of another dtype than what they scale")
        shape = static_dims(op.operands[0])
        return Refusal("the shape is symbolic") if shape is None else Normalised(op, shape)

    def build(self, match: Normalised, rw: Rewriter) -> None:
        """The scale of each channel, then four operators."""
        op, shape = match.op, match.shape
        spread = (1, shape[1], *[1] * (len(shape) - 2))

        def channels(name: str) -> SSAValue | None:
            value = op.operand(name)
            return None if value is None else view(rw, value, spread)

        x, mean, variance = op.operands[0], channels("running_mean"), channels("running_var")
        weight, bias = channels("weight"), channels("bias")
        assert mean is not None, "evaluation mode has statistics"
        assert variance is not None, "evaluation mode has statistics"
        scale = put(rw, aten.RsqrtDefault, put(rw, aten.AddScalar, variance, op.arg("eps")))
        if weight is not None:
            scale = put(rw, aten.MulTensor, scale, weight)
        y = put(rw, aten.MulTensor, put(rw, aten.SubTensor, x, mean), scale)
        if bias is not None:
            y = put(rw, aten.AddTensor, y, bias)
        rw.replace(op, [y])
