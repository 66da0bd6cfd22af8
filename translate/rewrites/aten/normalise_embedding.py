"""Drop what only training reads from `embedding`: padding index, frequency scaling, sparsity.

Before:
    func.func @forward(%i: tensor<2xi64>, %w: tensor<9x4xf32>) -> tensor<2x4xf32> {
      %z = aten.mul.Scalar(%i, 0) : (tensor<2xi64>) -> tensor<2xi64>
      %y = aten.embedding.default(%w, %z, 0, true, false) : (tensor<9x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
      func.return %y : tensor<2x4xf32>
    }
After:
    func.func @forward(%i: tensor<2xi64>, %w: tensor<9x4xf32>) -> tensor<2x4xf32> {
      %z = aten.mul.Scalar(%i, 0) : (tensor<2xi64>) -> tensor<2xi64>
      %y = aten.embedding.default(%w, %z) : (tensor<9x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
      func.return %y : tensor<2x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class NormaliseEmbedding(Respell):
    """`embedding(weight, indices, …)` to `embedding(weight, indices)`."""

    name: ClassVar[str] = "normalise-embedding"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.EmbeddingDefault,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | None:
        """An embedding with more than its two operands; the rest acts on gradients alone."""
        if not {"padding_idx", "scale_grad_by_freq", "sparse"} & set(op.properties):
            return None
        weight, indices = op.operands[:2]
        return Respelled(op, aten.EmbeddingDefault, {"weight": weight, "indices": indices})
