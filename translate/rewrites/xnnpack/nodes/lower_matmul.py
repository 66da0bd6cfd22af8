"""Products of two activations to batch-matrix-multiply nodes, a transposed right side absorbed.

Before:
    func.func @forward(%a: tensor<2x4x8xf32>, %b: tensor<2x5x8xf32>) -> tensor<2x4x5xf32> {
      %t = aten.permute.default(%b, [0, 2, 1]) : (tensor<2x5x8xf32>) -> tensor<2x8x5xf32>
      %y = aten.bmm.default(%a, %t) : (tensor<2x4x8xf32>, tensor<2x8x5xf32>) -> tensor<2x4x5xf32>
      func.return %y : tensor<2x4x5xf32>
    }
After:
    func.func @forward(%a: tensor<2x4x8xf32>, %b: tensor<2x5x8xf32>) -> tensor<2x4x5xf32> {
      %y = xnnpack.batch_matrix_multiply(%a, %b, transpose_b) : (tensor<2x4x8xf32>, tensor<2x5x8xf32>) -> tensor<2x4x5xf32>
      func.return %y : tensor<2x4x5xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import axis, permute, view
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack, not_static


@dataclass(frozen=True)
class Product:
    """`left @ right`, or `left @ rightᵀ`; 2-D operands get a batch axis."""

    op: SchemaOp
    left: SSAValue
    right: SSAValue
    transposed: bool


@dataclass(frozen=True)
class LowerMatmul(Rewrite[Product]):
    """`aten.{mm,bmm,matmul}` to `xnnpack.batch_matrix_multiply`."""

    name: ClassVar[str] = "lower-matmul"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MmDefault,
        aten.BmmDefault,
        aten.MatmulDefault,
    )
    bound: ClassVar[Bound] = roundings("sums in another order")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Product | Refusal | None:
        """Guards: float elements, both operands matrices or stacks of them."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        left, right = op.operands[0], op.operands[1]
        ranks = len(dims(left.type)), len(dims(right.type))
        if min(ranks) < 2:
            return Refusal("an operand is a vector; write it as a matrix of one row")
        if ranks[0] != ranks[1] and (not_static(left) or not_static(right)):
            return Refusal("the ranks of the operands differ and a dimension is symbolic")
        return Product(op, left, right, is_turned(right))

    def build(self, match: Product, rw: Rewriter) -> None:
        """Equal ranks of at least three, the product, the stated shape."""
        result = match.op.results[0]
        rank = max(3, len(dims(match.left.type)), len(dims(match.right.type)))
        right = upright(rw, match.right) if match.transposed else match.right
        left, right = (_raised(rw, value, rank) for value in (match.left, right))
        new = xnnpack.BatchMatrixMultiply.make(left, right, transpose_b=match.transposed)
        output = rw.insert(new).results[0]
        rw.replace(match.op, [view(rw, output, dims(result.type))])


def is_turned(value: SSAValue) -> bool:
    """Whether a permute brought a tensor's last axis to the rows: the product can read it as is."""
    owner = value.owner
    if not isinstance(owner, aten.PermuteDefault):
        return False
    rank = len(dims(value.type))
    return axis(owner.arg("dims")[-2], rank) == rank - 1


def upright(rw: Rewriter, value: SSAValue) -> SSAValue:
    """The permuted tensor with its last axis last again; whole rows are moved, or nothing."""
    owner = value.owner
    assert isinstance(owner, aten.PermuteDefault)
    rank = len(dims(value.type))
    order = [axis(d, rank) for d in owner.arg("dims")]
    order[-2:] = order[-1], order[-2]
    return permute(rw, owner.operands[0], order)


def _raised(rw: Rewriter, value: SSAValue, rank: int) -> SSAValue:
    shape: list[Dim] = list(dims(value.type))
    return view(rw, value, [*([1] * (rank - len(shape))), *shape])
