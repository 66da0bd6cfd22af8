"""`cdist` between two lists of points: the norm of all differences.

Before:
    %y = aten._cdist_forward.default(%x, %z, 2.0, none) : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
After:
    %0 = aten.view.default(%x, [3, 1, 4]) : (tensor<3x4xf32>) -> tensor<3x1x4xf32>
    %1 = aten.view.default(%z, [1, 2, 4]) : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
    %2 = aten.sub.Tensor(%0, %1) : (tensor<3x1x4xf32>, tensor<1x2x4xf32>) -> tensor<3x2x4xf32>
    %y = aten.linalg_vector_norm.default(%2, 2.0, [2], false) : (tensor<3x2x4xf32>) -> tensor<3x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.translate.rewrites.building import become, emit, static_dims, view

LARGEST = 1 << 24
"""The most differences."""


@dataclass(frozen=True)
class Distance:
    """Lists of points `[…, P, M]` and `[…, R, M]` with one batch."""

    op: SchemaOp
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class DistanceToNorms(Rewrite[Distance]):
    """`_cdist_forward` and `cdist` to a difference and `linalg_vector_norm`."""

    name: ClassVar[str] = "distance-to-norms-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten._CdistForwardDefault,
        aten.CdistDefault,
    )
    bound: ClassVar[Bound] = roundings("torch multiplies matrices for long lists")

    def match(self, op: SchemaOp, program: Program) -> Distance | Refusal | None:
        """Known sizes, one batch, not too many differences."""
        left, right = static_dims(op.operands[0]), static_dims(op.operands[1])
        if left is None or right is None:
            return Refusal("the shape is symbolic")
        if left[:-2] != right[:-2]:
            return Refusal("the points are of different batches")
        count = left[-2]
        for size in right:
            count *= size
        if count > LARGEST:
            return Refusal(f"its {count} differences are more than {LARGEST}")
        return Distance(op, left, right)

    def build(self, match: Distance, rw: Rewriter) -> None:
        """Each point against each."""
        op, (*batch, points, width) = match.op, match.left
        others, held = match.right[-2], element(op.results[0].type)
        left = view(rw, op.operands[0], (*batch, points, 1, width))
        right = view(rw, op.operands[1], (*batch, 1, others, width))
        every = tensor((*batch, points, others, width), held)
        difference = emit(rw, aten.SubTensor.make(left, right, result_types=[every]))
        axes = [len(batch) + 2]
        become(rw, op, aten.LinalgVectorNormDefault, difference, op.arg("p"), axes, False)
