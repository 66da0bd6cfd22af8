"""The greatest or least element over any axes, as max pooling of images one window high.

`[B, N, C]` over N is an image of height N and width one, channels last already, pooled whole; the
least is the negated greatest of the negated. Axes that do not lie together go one run at a time.
Pixels of one channel are pooled one by one: a row of which nothing stands behind is folded into
lines of a few elements, or stood upright (1024 rows of 1024: 5.8 ms, folded 0.4 ms).
XNNPACK's pooling may take the number where one of two is NaN: by default a sum of squares, which is
NaN for nothing else, is turned into 0 or NaN and taken off (`carry-nans` says how).

Before:
    %y = aten.amax.default(%x, [1]) : (tensor<2x4x8xf32>) -> tensor<2x8xf32>
After:
    %0 = aten.view.default(%x, [2, 4, 1, 8]) : (tensor<2x4x8xf32>) -> tensor<2x4x1x8xf32>
    %1 = xnnpack.max_pooling_2d(%0, kernel=[4, 1], padding=[0, 0, 0, 0], stride=[4, 1], dilation=[1, 1]) : (tensor<2x4x1x8xf32>) -> tensor<2x1x1x8xf32>
    %y = aten.view.default(%1, [2, 8]) : (tensor<2x1x1x8xf32>) -> tensor<2x8xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import (
    axes,
    emit,
    permute,
    put,
    static_dims,
    view,
)
from stepwell.translate.rewrites.xnnpack.floats.carry_nans import carries_nans, nans_along
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_reduction import runs_of
from stepwell.translate.values import is_never_nan


@dataclass(frozen=True)
class Greatest:
    """The greatest (or least) over runs of neighbouring axes, last run first."""

    op: SchemaOp
    shape: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    carries: bool
    """Whether NaNs are kept by arithmetic beside the pooling."""


@dataclass(frozen=True)
class LowerGreatest(Rewrite[Greatest]):
    """`aten.{amax,amin}` to max pooling."""

    name: ClassVar[str] = "lower-greatest"
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a maximum takes either of two zeros")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AmaxDefault, aten.AminDefault)

    def match(self, op: SchemaOp, program: Program) -> Greatest | Refusal | None:
        """Guards: float elements, a static shape."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("a dimension is symbolic")
        reduced = axes(op.arg("dim") or range(len(shape)), len(shape))
        return Greatest(op, shape, runs_of(reduced), carries_nans(op.operands, program))

    def deviates(self, match: Greatest, program: Program) -> Deviation | None:
        """XNNPACK's pooling may take the number where one of two is NaN; torch takes the NaN."""
        if match.carries or is_never_nan(match.op.operands[0], program):
            return None
        return Deviation("a NaN may be lost beside a number")

    def build(self, match: Greatest, rw: Rewriter) -> None:
        """Pool run by run from behind; the shape is restored by a view."""
        op, value, shape = match.op, match.op.operands[0], list(match.shape)
        given, reduced = value, [axis for run in match.runs for axis in range(*run)]
        is_least = isinstance(op, aten.AminDefault)
        if is_least:
            value = emit(rw, aten.NegDefault.make(value))
        for first, end in match.runs:
            count = prod(shape[first:end])
            if count > 1:
                value = _greatest(rw, value, shape[:first], count, prod(shape[end:]))
            shape[first:end] = [1] * (end - first)
        if is_least:
            value = emit(rw, aten.NegDefault.make(value))
        if match.carries:
            value = view(rw, value, shape)
            nans = nans_along(rw, given, sorted(reduced), rw.program)
            value = put(rw, aten.SubTensor, value, nans)
        rw.replace(op, [view(rw, value, dims(op.results[0].type))])


LINES = (8, 16, 4, 32)
"""Elements of the lines that a row is folded into, the best first."""


def _greatest(
    rw: Rewriter, value: SSAValue, leading: list[int], count: int, behind: int
) -> SSAValue:
    """The greatest of each `count` elements which have `behind` elements behind each of them."""
    rows = prod(leading)
    if behind == 1:
        line = next((size for size in LINES if count % size == 0 and count > 2 * size), None)
        if line is not None:
            value = _pooled(rw, view(rw, value, [rows, count // line, 1, line]), count // line)
            count = line
        elif leading and leading[-1] >= min(LINES):
            value = permute(
                rw, view(rw, value, [rows // leading[-1], leading[-1], count]), [0, 2, 1]
            )
            rows, behind = rows // leading[-1], leading[-1]
    return _pooled(rw, view(rw, value, [rows, count, 1, behind]), count)


def _pooled(rw: Rewriter, image: SSAValue, height: int) -> SSAValue:
    pooling = xnnpack.MaxPooling2d.make(
        image, kernel=(height, 1), stride=(height, 1), padding=(0, 0, 0, 0), dilation=(1, 1)
    )
    return rw.insert(pooling).results[0]
