"""Turn `split`, `chunk`, `tensor_split` and `unbind` into one slice a part.

Before:
    %a, %b = aten.split.Tensor(%x, 4, 1) : (tensor<2x6xf32>) -> (tensor<2x4xf32>, tensor<2x2xf32>)
    %c, %d = aten.unbind.int(%x) : (tensor<2x6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
    func.return %a, %b, %d : tensor<2x4xf32>, tensor<2x2xf32>, tensor<6xf32>
After:
    %a = aten.slice.Tensor(%x, 1, 0, 4, 1) : (tensor<2x6xf32>) -> tensor<2x4xf32>
    %b = aten.slice.Tensor(%x, 1, 4, 6, 1) : (tensor<2x6xf32>) -> tensor<2x2xf32>
    %0 = aten.slice.Tensor(%x, 0, 1, 2, 1) : (tensor<2x6xf32>) -> tensor<1x6xf32>
    %d = aten.view.default(%0, [6]) : (tensor<1x6xf32>) -> tensor<6xf32>
    func.return %a, %b, %d : tensor<2x4xf32>, tensor<2x2xf32>, tensor<6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    slice_axis,
    view,
)


@dataclass(frozen=True)
class Split:
    """Parts of an axis, one after the other; `drops` if each is one element without the axis."""

    op: SchemaOp
    at: int
    lengths: tuple[int, ...]
    drops: bool


@dataclass(frozen=True)
class SplitToSlices(Rewrite[Split]):
    """An op that cuts a tensor along one axis to slices (and views)."""

    name: ClassVar[str] = "split-to-slices"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.SplitTensor,
        aten.SplitSizes,
        aten.SplitCopyTensor,
        aten.SplitWithSizesDefault,
        aten.SplitWithSizesCopyDefault,
        aten.ChunkDefault,
        aten.TensorSplitSections,
        aten.TensorSplitIndices,
        aten.UnsafeSplitTensor,
        aten.UnsafeChunkDefault,
        aten.UnbindInt,
        aten.UnbindCopyInt,
    )

    def match(self, op: SchemaOp, program: Program) -> Split | Refusal | None:
        """The length of each part is read from the result types, which are verified."""
        value = op.operands[0]
        at = axis(op.arg("dim"), len(dims(value.type)))
        if isinstance(op, aten.UnbindInt | aten.UnbindCopyInt):
            shape = [d for i, d in enumerate(dims(value.type)) if i != at]
            refusal = cannot_be_viewed_as(value, shape)
            return refusal or Split(op, at, (1,) * len(op.results), drops=True)
        sizes = [dims(result.type)[at] for result in op.results]
        lengths = tuple(size for size in sizes if isinstance(size, int))
        if len(lengths) != len(sizes):
            return Refusal("the parts of a symbolic axis have symbolic bounds")
        return Split(op, at, lengths, drops=False)

    def build(self, match: Split, rw: Rewriter) -> None:
        """Write a slice for every part that is used."""
        value = match.op.operands[0]
        starts = [0, *accumulate(match.lengths)]
        for start, length, result in zip(starts, match.lengths, match.op.results, strict=False):
            if not result.uses:
                continue
            part = slice_axis(rw, value, match.at, start, start + length)
            if match.drops:
                part = view(rw, part, dims(result.type))
            rw.replace_value(result, part)
        rw.erase(match.op)
