"""Let a batched product read `[B, H, N, D]` where views merged it to `[B·H, N, D]`.

XNNPACK multiplies stacks of any rank, so the views cost copies for nothing. The view behind the
product meets the one that restores the heads, and both go.

Before:
    %av = aten.view.default(%a, [6, 4, 8]) : (tensor<2x3x4x8xf32>) -> tensor<6x4x8xf32>
    %bv = aten.view.default(%b, [6, 8, 4]) : (tensor<2x3x8x4xf32>) -> tensor<6x8x4xf32>
    %p = aten.bmm.default(%av, %bv) : (tensor<6x4x8xf32>, tensor<6x8x4xf32>) -> tensor<6x4x4xf32>
    %y = aten.view.default(%p, [2, 3, 4, 4]) : (tensor<6x4x4xf32>) -> tensor<2x3x4x4xf32>
After:
    %0 = aten.matmul.default(%a, %b) : (tensor<2x3x4x8xf32>, tensor<2x3x8x4xf32>) -> tensor<2x3x4x4xf32>
    %p = aten.view.default(%0, [6, 4, 4]) : (tensor<2x3x4x4xf32>) -> tensor<6x4x4xf32>
    %y = aten.view.default(%p, [2, 3, 4, 4]) : (tensor<6x4x4xf32>) -> tensor<2x3x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import emit, view


@dataclass(frozen=True)
class MergedProduct:
    """A product of stacks, the operands before they were merged, and their batch axes."""

    op: SchemaOp
    left: SSAValue
    right: SSAValue
    batch: tuple[Dim, ...]


@dataclass(frozen=True)
class UnmergeBatch(Rewrite[MergedProduct]):
    """`bmm(view(a), view(b))` to `view(matmul(a, b))` where the views merge batch axes."""

    name: ClassVar[str] = "unmerge-batch"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    bound: ClassVar[Bound] = roundings("torch may run the stack as another kernel")

    def match(self, op: SchemaOp, program: Program) -> MergedProduct | Refusal | None:
        """Guards: a merging view on both sides, or on one and the views that come meet others."""
        left, right = op.operands
        merged = [source for source in map(merged_from, op.operands) if source is not None]
        if not merged:
            return None
        batch = min((dims(source.type)[:-2] for source in merged), key=len)
        if len(merged) == 1 and not (split_again(op, batch) or stands_between_views(op)):
            return Refusal("one operand is a merged stack, the other and the result are not")
        return MergedProduct(op, merged_from(left) or left, merged_from(right) or right, batch)

    def build(self, match: MergedProduct, rw: Rewriter) -> None:
        """The product of the stacks, then the merge."""
        result = match.op.results[0]
        left, right = (
            view(rw, value, [*match.batch, *dims(value.type)[-2:]])
            for value in (match.left, match.right)
        )
        shape: list[Dim] = [*match.batch, *dims(result.type)[-2:]]
        product = aten.MatmulDefault.make(
            left, right, result_types=[tensor(shape, element(result.type))]
        )
        rw.replace(match.op, [view(rw, emit(rw, product), dims(result.type))])


def split_again(op: SchemaOp, batch: tuple[Dim, ...]) -> bool:
    """Whether every reader of a product is a view that splits the batch as it was."""
    readers = [use.operation for use in op.results[0].uses]
    return bool(readers) and all(
        isinstance(reader, aten.ViewDefault) and dims(reader.results[0].type)[:-2] == batch
        for reader in readers
    )


def stands_between_views(op: SchemaOp) -> bool:
    """Whether operands and readers of a product are views: another view of those costs nothing.

    So it is where query heads share keys: their rows are merged, the keys' are not.
    """
    readers = [use.operation for use in op.results[0].uses]
    around = [*(value.owner for value in op.operands), *readers]
    return bool(readers) and all(isinstance(other, aten.ViewDefault) for other in around)


def merged_from(value: SSAValue) -> SSAValue | None:
    """The stack of higher rank that a view merged along its batch axes, else None."""
    owner = value.owner
    if not isinstance(owner, aten.ViewDefault):
        return None
    source = owner.operands[0]
    whole, merged = dims(source.type), dims(value.type)
    if len(whole) > len(merged) == 3 and whole[-2:] == merged[-2:] and UNKNOWN not in whole:
        return source
    return None
