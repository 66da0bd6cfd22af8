"""Mean and sum over any axes: as a linear layer over the last ones, else as an image's planes.

XNNPACK reduces nothing but image planes. `[B, N, C]` reduced over N is an image of height N and
width one, channels last already, so no transpose is needed. Axes that do not lie together are
reduced one run at a time.

Before:
    %y = aten.mean.dim(%x, [2], true) : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
After:
    %y = aten.linear.default(%x, dense<0.125>) : (tensor<2x4x8xf32>, tensor<1x8xf32>) -> tensor<2x4x1xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f16
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.rewrites.aten.building import axes, cast, put, static_dims, view
from stepwell.translate.rewrites.xnnpack.carry_nans import carries_nans
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.row_statistics import too_wide, weighted_rows
from stepwell.translate.rewrites.xnnpack.widen_halves import widened


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
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "sums in another order")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Reduction | Refusal | None:
        """Guards: float elements, static shape unless only the last axis is reduced."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        rank = len(dims(op.operands[0].type))
        reduced = axes(op.arg("dim") or range(rank), rank)
        runs = runs_of(reduced)
        shape = dims(op.operands[0].type)
        only_rows = runs == ((rank - 1, rank),) and isinstance(shape[-1], int)
        if static_dims(op.operands[0]) is None and not only_rows:
            return Refusal("a dimension is symbolic and more than the last axis is reduced")
        refusal = None
        if runs and runs[0][1] == rank:
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


def _count(shape: tuple[Dim, ...]) -> int:
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


def _reduce(rw: Rewriter, value: SSAValue, first: int, end: int, is_mean: bool) -> SSAValue:
    """One run of axes, kept with size one."""
    shape = dims(value.type)
    kept = [1 if first <= i < end else d for i, d in enumerate(shape)]
    if end == len(shape):
        if end - first > 1:
            sizes = [d for d in shape[first:] if isinstance(d, int)]
            value = view(rw, value, [*shape[:first], prod(sizes)])
        value = weighted_rows(rw, value, None if is_mean else 1.0, None)
        return view(rw, value, kept)
    sizes = [d for d in shape if isinstance(d, int)]
    count = prod(sizes[first:end])
    image = view(rw, value, [prod(sizes[:first]), count, 1, prod(sizes[end:])])
    pooled = xnnpack.GlobalAveragePooling2d.make(image, keep_dims=True)
    value = rw.insert(pooled).results[0]
    if not is_mean:
        value = put(rw, aten.MulScalar, value, float(count))
    return view(rw, value, kept)
