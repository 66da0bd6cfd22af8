"""Sinking: merge height and width of an image only after the ops that do not look along them.

Vision transformers flatten an image `[N, C, H, W]` to rows `[N, H·W, C]`, and unflatten it before
the next convolution. Where height and width are symbolic, XNNPACK can merge them (it infers one
size of a reshape) but cannot split them again. After norms, linear layers, permutations and
elementwise ops, the view that merges meets the view that splits, and both are removed.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %r = aten.view.default(%x, [1, -1, 4]) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>) -> tensor<1x?x4xf32, #stepwell.shape<[1, "h*w", 4]>>
    %y = aten.linear.default(%r, %w) : (tensor<1x?x4xf32, #stepwell.shape<[1, "h*w", 4]>>, tensor<5x4xf32>) -> tensor<1x?x5xf32, #stepwell.shape<[1, "h*w", 5]>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %0 = aten.linear.default(%x, %w) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>, tensor<5x4xf32>) -> tensor<1x?x?x5xf32, #stepwell.shape<[1, "h", "w", 5]>>
    %y = aten.view.default(%0, [1, -1, 5]) : (tensor<1x?x?x5xf32, #stepwell.shape<[1, "h", "w", 5]>>) -> tensor<1x?x5xf32, #stepwell.shape<[1, "h*w", 5]>>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import (
    axis,
    emit,
    emit_as,
    is_known,
    permute_op,
    view_op,
)

ELEMENTWISE = (
    aten.AddTensor,
    aten.AddScalar,
    aten.SubTensor,
    aten.MulTensor,
    aten.MulScalar,
    aten.DivTensor,
    aten.DivScalar,
    aten.ReluDefault,
    aten.GeluDefault,
    aten.SiluDefault,
    aten.SigmoidDefault,
    aten.TanhDefault,
    aten.HardswishDefault,
    aten.ClampDefault,
)
"""Elementwise ops in the models that flatten images."""


@dataclass(frozen=True)
class Merged:
    """A view of `source` in which `count` of its axes from `at` on are one."""

    source: SSAValue
    at: int
    count: int

    @property
    def apart(self) -> tuple[Dim, ...]:
        """Return the sizes of the axes that are merged."""
        return dims(self.source.type)[self.at : self.at + self.count]


def merged_axes(value: SSAValue) -> Merged | None:
    """Return the merge of a view, if it merges one run of axes with two or more symbolic sizes."""
    if not isinstance(value.owner, aten.ViewDefault):
        return None
    source = value.owner.operands[0]
    source_dims, value_dims = dims(source.type), dims(value.type)
    count = len(source_dims) - len(value_dims) + 1
    if not is_known((*source_dims, *value_dims)):
        return None
    for at in range(len(value_dims)):
        if (
            source_dims[:at] == value_dims[:at]
            and source_dims[at + count :] == value_dims[at + 1 :]
        ):
            found = Merged(source, at, count)
            symbolic = [size for size in found.apart if isinstance(size, Size)]
            return found if len(symbolic) > 1 else None
    return None


@dataclass(frozen=True)
class OfMergedAxes:
    """An op that treats all rows equally, and which of its operands are merged."""

    op: SchemaOp
    merged: Merged
    sources: tuple[SSAValue | None, ...]


@dataclass(frozen=True)
class KeepAxesApart(Rewrite[OfMergedAxes]):
    """`op(merge(x))` to `merge(op(x))`."""

    name: ClassVar[str] = "keep-axes-apart"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.PermuteDefault,
        aten.LinearDefault,
        aten.LayerNormDefault,
        *ELEMENTWISE,
    )
    bound: ClassVar[Bound] = roundings("a batched GEMM may sum in another order")

    def match(self, op: SchemaOp, program: Program) -> OfMergedAxes | None:
        """Guards: a merge of symbolic axes, read by an op that does not look along them."""
        axes = [merged_axes(operand) for operand in op.operands]
        merged = next((each for each in axes if each is not None), None)
        if merged is None or not _is_blind(op, merged, axes):
            return None
        return OfMergedAxes(op, merged, tuple(each and each.source for each in axes))

    def build(self, match: OfMergedAxes, rw: Rewriter) -> None:
        """Build the op on separate axes, then the merge."""
        op, merged = match.op, match.merged
        result = op.results[0]
        if isinstance(op, aten.PermuteDefault):
            new = permute_op(merged.source, spread(op.arg("dims"), merged.at, merged.count))
        else:
            result_dims = dims(result.type)
            shape = [*result_dims[: merged.at], *merged.apart, *result_dims[merged.at + 1 :]]
            values = [
                operand if source is None else source
                for operand, source in zip(op.operands, match.sources, strict=True)
            ]
            new = remade(op, values, [tensor(shape, element(result.type))])
        made = view_op(rw, emit(rw, new), dims(result.type))
        rw.replace(op, [emit_as(rw, made, result)])


def spread(order: Sequence[int], at: int, count: int) -> list[int]:
    """Return a permutation in which the axis at `at` is `count` separate axes."""
    made: list[int] = []
    for each in (axis(number, len(order)) for number in order):
        first = each + count - 1 if each > at else each
        made += range(first, first + count) if each == at else [first]
    return made


def _is_blind(op: SchemaOp, merged: Merged, found: list[Merged | None]) -> bool:
    """Whether an op does the same for each position along the merged axis."""
    operand_dims = dims(op.operands[0].type)
    behind = len(operand_dims) - 1 - merged.at
    if isinstance(op, aten.PermuteDefault):
        return True
    if isinstance(op, aten.LinearDefault):
        return found[0] is merged and behind > 0 and len(dims(op.operands[1].type)) == 2
    if isinstance(op, aten.LayerNormDefault):
        return found[0] is merged and behind >= len(op.arg("normalized_shape"))
    return all(
        _broadcasts(op, value, merged, each) for value, each in zip(op.operands, found, strict=True)
    )


def _broadcasts(op: SchemaOp, value: SSAValue, merged: Merged, own: Merged | None) -> bool:
    """Whether an elementwise op's operand is merged the same way, or has only later axes."""
    result_dims = dims(op.results[0].type)
    if own is not None:
        return (own.at, own.apart) == (merged.at, merged.apart) and dims(value.type) == result_dims
    if not isinstance(value.type, TensorType):
        return False
    return len(dims(value.type)) < len(result_dims) - merged.at
