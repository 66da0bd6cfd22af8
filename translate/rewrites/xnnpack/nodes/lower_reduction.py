"""Mean and sum over any axes: as a linear layer over the last ones, else as an image's planes.

XNNPACK reduces nothing but image planes. `[B, N, C]` reduced over N is an image of height N and
width one, channels last already, so no transpose is needed. Axes that do not lie together are
reduced one run at a time. Where more than one size is symbolic, which no reshape works out, each axis is
turned to the end and summed up there; planes of any size are averaged by pooling.

Before:
    %y = aten.mean.dim(%x, [2], true) : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
After:
    %y = aten.linear.default(%x, dense<0.125>) : (tensor<2x4x8xf32>, tensor<1x8xf32>) -> tensor<2x4x1xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f16
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN, Dim, Size, number_of, settled
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import axes, cast, permute, put, view
from stepwell.translate.rewrites.norms.row_statistics import too_wide, weighted_rows
from stepwell.translate.rewrites.xnnpack.floats.carry_nans import carries_nans
from stepwell.translate.rewrites.xnnpack.floats.widen_halves import widened
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack


@dataclass(frozen=True)
class Reduction:
    """A mean or sum over runs of neighbouring axes, `(first, last + 1)` each, last run first."""

    op: SchemaOp
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LowerReduction(Rewrite[Reduction]):
    """`aten.{mean.dim,sum.dim_IntList}` to fully-connected or global-average-pooling nodes."""

    name: ClassVar[str] = "lower-reduction"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MeanDim, aten.SumDimIntList)
    bound: ClassVar[Bound] = roundings("sums in another order")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Reduction | Refusal | None:
        """Guards: float elements; an axis of symbolic size is averaged by pooling, or not at all."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        rank = len(dims(op.operands[0].type))
        runs = runs_of(axes(op.arg("dim") or range(rank), rank))
        shape = dims(op.operands[0].type)
        if UNKNOWN in shape:
            return Refusal("a dimension is not known, not even as an expression")
        refusal = None
        if any(_symbols(shape[slice(*run)]) for run in runs):
            refusal = _not_pooled(shape, runs, isinstance(op, aten.MeanDim))
        elif runs and (runs[0][1] == rank or _symbols(shape) > 1):
            refusal = too_wide(_count(shape[slice(*runs[0])]))
        return refusal or Reduction(op, runs)

    def build(self, match: Reduction, rw: Rewriter) -> None:
        """Reduce run by run from behind; the shape is restored by a view."""
        op = match.op
        value = op.operands[0]
        is_mean = isinstance(op, aten.MeanDim)
        is_widened = element(value.type) == f16 and carries_nans([value], rw.program)
        if is_widened:  # A linear layer of halves limits a NaN to −∞ on some CPUs.
            value = widened(rw, value)
        for first, end in match.runs:
            value = _reduce(rw, value, first, end, is_mean)
        if is_widened:
            value = cast(rw, value, f16)
        rw.replace(op, [view(rw, value, dims(op.results[0].type))])


def _count(shape: Sequence[Dim]) -> int:
    return prod(size for size in shape if isinstance(size, int))


def runs_of(reduced: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Neighbouring axes together: `(0, 2, 3)` to `((2, 4), (0, 1))`."""
    runs: list[tuple[int, int]] = []
    for at in reversed(reduced):
        if runs and runs[-1][0] == at + 1:
            runs[-1] = (at, runs[-1][1])
        else:
            runs.append((at, at + 1))
    return tuple(runs)


def _symbols(shape: Sequence[Dim]) -> int:
    """How many dimensions are symbolic: a reshape node works out one."""
    return sum(isinstance(size, Size) for size in shape)


_PLANES = ((2, 4),)
"""The runs of a mean over the planes of `[N, C, H, W]`."""


def _not_pooled(
    shape: Sequence[Dim], runs: Sequence[tuple[int, int]], is_mean: bool
) -> Refusal | None:
    """Why axes of symbolic size are not averaged by one pool, or None."""
    if not is_mean:
        return Refusal("an axis of symbolic size is summed up; XNNPACK has averages of planes")
    if (len(shape) == 4 and tuple(runs) == _PLANES) or (len(runs) == 1 and _symbols(shape) == 1):
        return None
    return Refusal("axes of symbolic size are averaged that are not the planes of an image")


def _reduce(rw: Rewriter, value: SSAValue, first: int, end: int, is_mean: bool) -> SSAValue:
    """One run of axes, kept with size one."""
    shape = dims(value.type)
    kept = [1 if first <= i < end else d for i, d in enumerate(shape)]
    is_open = _symbols(shape[first:end]) > 0
    if is_open and len(shape) == 4 and (first, end) == (2, 4):
        image = permute(rw, value, [0, 2, 3, 1])
        return permute(rw, _pooled(rw, image), [0, 3, 1, 2])
    if _symbols(shape) > 1:
        for axis in range(first, end):
            value = _rows_along(rw, value, axis, is_mean)
        return value
    if end == len(shape) and not is_open:
        if end - first > 1:
            value = view(rw, value, [*shape[:first], _extent(shape[first:])])
        value = weighted_rows(rw, value, None if is_mean else 1.0, None)
        return view(rw, value, kept)
    count = _extent(shape[first:end])
    image = view(rw, value, [_extent(shape[:first]), count, 1, _extent(shape[end:])])
    value = _pooled(rw, image)
    if not is_mean:
        value = put(rw, aten.MulScalar, value, float(number_of(count)))
    return view(rw, value, kept)


def _extent(shape: Sequence[Dim]) -> Dim:
    return settled(prod(shape))


def _pooled(rw: Rewriter, image: SSAValue) -> SSAValue:
    """The mean over the planes of `[N, H, W, C]`: `[N, 1, 1, C]`."""
    return rw.insert(xnnpack.GlobalAveragePooling2d.make(image, keep_dims=True)).results[0]


def _rows_along(rw: Rewriter, value: SSAValue, axis: int, is_mean: bool) -> SSAValue:
    """One axis summed up behind the others, and put back in its place."""
    rank = len(dims(value.type))
    order = [*(at for at in range(rank) if at != axis), axis]
    value = weighted_rows(rw, permute(rw, value, order), None if is_mean else 1.0, None)
    return permute(rw, value, [order.index(at) for at in range(rank)])
