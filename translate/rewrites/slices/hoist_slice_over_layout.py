"""Move a slice ahead of the permute or view it follows, towards what made the tensor.

`qkv.view(B, N, 3, H, D).permute(2, 0, 3, 1, 4)[i]` is a slice of the fused projection's output
features; ahead of both layout ops `split_linear` can cut the projection itself. On a view, the
sliced axis must be the leading factor of a source axis (axes tracked by their strides, not sizes).

Before:
    %v = aten.view.default(%x, [2, 2, 3]) : (tensor<2x6xf32>) -> tensor<2x2x3xf32>
    %p = aten.permute.default(%v, [1, 0, 2]) : (tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
    %y = aten.slice.Tensor(%p, 0, 1, 2, 1) : (tensor<2x2x3xf32>) -> tensor<1x2x3xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 3, 6, 1) : (tensor<2x6xf32>) -> tensor<2x3xf32>
    %1 = aten.view.default(%0, [2, 1, 3]) : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
    %y = aten.permute.default(%1, [1, 0, 2]) : (tensor<2x1x3xf32>) -> tensor<1x2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    emit,
    permute_op,
    slice_op,
    view,
)

MOST_READERS = 64
"""Readers of a layout op's result, or of its source, that are looked at."""


@dataclass(frozen=True)
class SlicedLayout:
    """A slice `start:stop` of a layout op; on the source it is `at`, `begin:end`."""

    op: SchemaOp
    layout: SchemaOp
    at: int
    begin: int
    end: int


@dataclass(frozen=True)
class HoistSliceOverLayout(Rewrite[SlicedLayout]):
    """`slice(permute(x))` to `permute(slice(x))`, likewise for view."""

    name: ClassVar[str] = "hoist-slice-over-layout"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)

    def match(self, op: SchemaOp, program: Program) -> SlicedLayout | Refusal | None:
        """Guards: static bounds and step 1; every reader is such a slice; a gain."""
        layout = op.operands[0].owner
        if not isinstance(layout, aten.PermuteDefault | aten.ViewDefault):
            return None
        shape, source = dims(op.operands[0].type), dims(layout.operands[0].type)
        if not all(isinstance(u.operation, aten.SliceTensor) for u in layout.results[0].uses):
            return None
        bounds = static_bounds(op)
        if bounds is None:
            return None
        at, start, stop = bounds
        if not (drops_some(layout, at) or cuts_outputs(op.operands[0], at)):
            return Refusal("no less would be laid out, and the slices cut no layer's outputs")
        if isinstance(layout, aten.PermuteDefault):
            rank = len(shape)
            return SlicedLayout(op, layout, axis(layout.arg("dims")[at], rank), start, stop)
        found = leading_factor(source, shape, at)
        if found is None:
            return Refusal("the sliced axis is not the leading part of an axis before the view")
        refusal = cannot_be_viewed_as(layout.operands[0], dims(op.results[0].type))
        if refusal is not None:
            return refusal
        source_axis, unit = found
        return SlicedLayout(op, layout, source_axis, start * unit, stop * unit)

    def build(self, match: SlicedLayout, rw: Rewriter) -> None:
        """Slice the source, then lay the slice out."""
        source = match.layout.operands[0]
        cut = emit(rw, slice_op(source, match.at, match.begin, match.end, match.end - match.begin))
        if isinstance(match.layout, aten.PermuteDefault):
            rank = len(dims(source.type))
            order = [axis(d, rank) for d in match.layout.arg("dims")]
            result = emit(rw, permute_op(cut, order))
        else:
            result = view(rw, cut, dims(match.op.results[0].type))
        rw.replace(match.op, [result])


def drops_some(layout: SchemaOp, at: int) -> bool:
    """Whether a layout op that comes after the slices of its result moves less than it does now.

    It does not where they are together as large as it is, as each part is only moved for itself; nor
    where something else reads the source whole: the other layout op may become the same as this.
    More than `MOST_READERS` are not looked at, since each slice asks: they would be as many layout ops.
    """
    (value,), source = layout.results, layout.operands[0]
    around, cuts = (
        [use.operation for use in islice(held.uses, MOST_READERS + 1)] for held in (source, value)
    )
    if max(len(around), len(cuts)) > MOST_READERS:
        return False
    readers = [op for op in around if op is not layout]
    slices = [op for op in cuts if isinstance(op, aten.SliceTensor)]
    kept = {bounds for op in slices if (bounds := static_bounds(op)) is not None}
    size = dims(value.type)[at]
    total = sum(stop - start for axis_, start, stop in kept if axis_ == at)
    is_less = isinstance(size, int) and total < size
    return is_less and all(isinstance(reader, aten.SliceTensor) for reader in readers)


def cuts_outputs(value: SSAValue, at: int) -> bool:
    """Whether an axis, followed up through layout ops, is of a linear layer's outputs."""
    while isinstance(owner := value.owner, aten.PermuteDefault | aten.ViewDefault):
        shape, source = dims(value.type), dims(owner.operands[0].type)
        if isinstance(owner, aten.PermuteDefault):
            at = axis(owner.arg("dims")[at], len(shape))
        else:
            found = leading_factor(source, shape, at)
            if found is None:
                return False
            at, _ = found
        value = owner.operands[0]
    return isinstance(owner, aten.LinearDefault) and at == len(dims(value.type)) - 1


def static_bounds(op: SchemaOp) -> tuple[int, int, int] | None:
    """(axis, start, stop) of a slice with step 1 and numbers for bounds, on an axis of known size."""
    shape = dims(op.operands[0].type)
    start, stop = op.arg("start"), op.arg("end")
    at = axis(op.arg("dim"), len(shape))
    size = shape[at]
    if not isinstance(size, int) or op.arg("step") != 1:
        return None
    start = 0 if start is None else start
    stop = size if stop is None else stop
    if not isinstance(start, int) or not isinstance(stop, int):
        return None
    start = min(max(start + size if start < 0 else start, 0), size)
    stop = min(max(stop + size if stop < 0 else stop, start), size)
    return at, start, stop


def leading_factor(
    source: tuple[Dim, ...], viewed: tuple[Dim, ...], at: int
) -> tuple[int, int] | None:
    """(source axis, elements per step) if axis `at` of a view is the leading part of one axis.

    Row-major strides decide: the source axis must start where the viewed axis starts, so its
    outer extent is equal, and the viewed axis's stride must be a multiple of the source axis's.
    Symbolic sizes may stand outside and inside, the same ones on both sides.
    """
    outer, inner = _extent(viewed[:at]), _extent(viewed[at + 1 :])
    length = viewed[at]
    assert isinstance(length, int), "static_bounds asked for it"
    for index, size in enumerate(source):
        stride = _extent(source[index + 1 :])
        if (
            isinstance(size, int)
            and size > 1
            and stride[1] == inner[1]
            and stride[0]
            and _extent(source[:index]) == outer
            and inner[0] % stride[0] == 0
            and size * stride[0] == length * inner[0]
        ):
            return index, inner[0] // stride[0]
    return None


def _extent(shape: tuple[Dim, ...]) -> tuple[int, list[Size]]:
    """The product of the sizes that are numbers, and the others."""
    symbols = sorted((d for d in shape if isinstance(d, Size)), key=str)
    return prod(d for d in shape if isinstance(d, int)), symbols
