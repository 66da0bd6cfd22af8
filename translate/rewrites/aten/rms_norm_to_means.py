"""Spell `rms_norm` as models write it themselves: x · rsqrt(mean(x²) + ε) · w.

Before:
    func.func @forward(%x: tensor<2x6xf32>, %w: tensor<6xf32>) -> tensor<2x6xf32> {
      %y = aten.rms_norm.default(%x, [6], %w, 1.0e-5) : (tensor<2x6xf32>, tensor<6xf32>) -> tensor<2x6xf32>
      func.return %y : tensor<2x6xf32>
    }
After:
    func.func @forward(%x: tensor<2x6xf32>, %w: tensor<6xf32>) -> tensor<2x6xf32> {
      %0 = aten.mul.Tensor(%x, %x) : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
      %1 = aten.mean.dim(%0, [1], true) : (tensor<2x6xf32>) -> tensor<2x1xf32>
      %2 = aten.add.Scalar(%1, 1.0e-05) : (tensor<2x1xf32>) -> tensor<2x1xf32>
      %3 = aten.rsqrt.default(%2) : (tensor<2x1xf32>) -> tensor<2x1xf32>
      %4 = aten.mul.Tensor(%x, %3) : (tensor<2x6xf32>, tensor<2x1xf32>) -> tensor<2x6xf32>
      %y = aten.mul.Tensor(%4, %w) : (tensor<2x6xf32>, tensor<6xf32>) -> tensor<2x6xf32>
      func.return %y : tensor<2x6xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32, f64, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.aten.building import emit
from stepwell.translate.rewrites.aten.normalise_reduction import kept


@dataclass(frozen=True)
class RootMeanSquare:
    """An RMS norm over the last `count` axes."""

    op: SchemaOp
    count: int
    epsilon: float
    weight: SSAValue | None


@dataclass(frozen=True)
class RmsNormToMeans(Rewrite[RootMeanSquare]):
    """`rms_norm(x, w, ε)` to `x * rsqrt(mean(x * x) + ε) * w`."""

    name: ClassVar[str] = "rms-norm-to-means"
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "the mean may be summed in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.RmsNormDefault,
        aten._FusedRmsNormDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> RootMeanSquare | Refusal | None:
        """f32 or f64, and nobody reads the reciprocal root."""
        if any(root.uses for root in op.results[1:]):
            return Refusal("the reciprocal root that it saves for training is used")
        dtype = element(op.operands[0].type)
        if dtype not in (f32, f64):
            return Refusal("torch normalises this dtype in float32")
        weight = op.arg("weight")
        if weight is not None and element(weight.type) != dtype:
            return Refusal("the weight is of another dtype than what it scales")
        count = len(op.arg("normalized_shape"))
        if not count or any(value.type != op.operands[0].type for value in op.results[:1]):
            return Refusal("it normalises no axis")
        epsilon = op.arg("eps")
        if epsilon is None:
            epsilon = torch.finfo(torch_dtype(dtype)).eps
        return RootMeanSquare(op, count, epsilon, weight)

    def build(self, match: RootMeanSquare, rw: Rewriter) -> None:
        """Write square, mean, sum, root and products."""
        x = match.op.operands[0]
        rank = len(dims(x.type))
        over = tuple(range(rank - match.count, rank))
        small = tensor(kept(dims(x.type), over), element(x.type))
        square = emit(rw, aten.MulTensor.make(x, x, result_types=[x.type]))
        mean = emit(rw, aten.MeanDim.make(square, list(over), True, result_types=[small]))
        safe = emit(rw, aten.AddScalar.make(mean, match.epsilon, result_types=[small]))
        root = emit(rw, aten.RsqrtDefault.make(safe, result_types=[small]))
        value = emit(rw, aten.MulTensor.make(x, root, result_types=[x.type]))
        if match.weight is not None:
            value = emit(rw, aten.MulTensor.make(value, match.weight, result_types=[x.type]))
        rw.replace_value(match.op.results[0], value)
        rw.erase(match.op)
