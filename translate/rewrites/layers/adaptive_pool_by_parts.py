"""Adaptive pools in windows of several lengths: a mean of each part of an axis, side by side.

Before:
    %y = aten.adaptive_avg_pool1d.default(%x, [3]) : (tensor<1x2x5xf32>) -> tensor<1x2x3xf32>
After:
    %0 = aten.slice.Tensor(%x, 2, 0, 2, 1) : (tensor<1x2x5xf32>) -> tensor<1x2x2xf32>
    %1 = aten.slice.Tensor(%x, 2, 1, 4, 1) : (tensor<1x2x5xf32>) -> tensor<1x2x3xf32>
    %2 = aten.slice.Tensor(%x, 2, 3, 5, 1) : (tensor<1x2x5xf32>) -> tensor<1x2x2xf32>
    %3 = aten.mean.dim(%0, [2], true) : (tensor<1x2x2xf32>) -> tensor<1x2x1xf32>
    %4 = aten.mean.dim(%1, [2], true) : (tensor<1x2x3xf32>) -> tensor<1x2x1xf32>
    %5 = aten.mean.dim(%2, [2], true) : (tensor<1x2x2xf32>) -> tensor<1x2x1xf32>
    %y = aten.cat.default([%3, %4, %5], 2) : (tensor<1x2x1xf32>, tensor<1x2x1xf32>, tensor<1x2x1xf32>) -> tensor<1x2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import cat, reduced, slice_axis, static_dims
from stepwell.translate.rewrites.spelling.maxima import reads_their_indices

_MAXIMA = (aten.AdaptiveMaxPool2dDefault, op_class("aten.adaptive_max_pool3d.default"))
MOST_PARTS = 64
"""The most windows of an axis: each takes a slice and a reduction."""


@dataclass(frozen=True)
class Parts:
    """A pool whose last axes have these many elements and get those many."""

    op: SchemaOp
    held: tuple[int, ...]
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class AdaptivePoolByParts(Rewrite[Parts]):
    """`adaptive_avg_pool`, `adaptive_max_pool` of one to three axes to reductions of slices.

    Attributes:
        only_uneven: leaves windows of one length and of several elements, for targets that pool them.
    """

    only_uneven: bool = False
    name: ClassVar[str] = "adaptive-pool-by-parts"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AdaptiveAvgPool1dDefault,
        aten.AdaptiveAvgPool2dDefault,
        aten._AdaptiveAvgPool2dDefault,
        aten.AdaptiveAvgPool3dDefault,
        aten._AdaptiveAvgPool3dDefault,
        *_MAXIMA,
    )
    bound: ClassVar[Bound] = roundings("a mean of means rounds twice")

    def match(self, op: SchemaOp, program: Program) -> Parts | Refusal | None:
        """Known sizes, not too many windows; nobody reads places."""
        held, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if held is None:
            return Refusal("the shape is symbolic")
        assert made is not None, "of known sizes and numbers"
        if refusal := reads_their_indices(op):
            return refusal
        space = len(op.arg("output_size"))
        wanted = made[-space:]
        if max(wanted) > MOST_PARTS:
            return Refusal(f"it has {max(wanted)} windows, more than {MOST_PARTS}")
        sizes = list(zip(held[-space:], wanted, strict=True))
        if self.only_uneven and not is_uneven(sizes):
            return None
        return Parts(op, held[-space:], wanted)

    def build(self, match: Parts, rw: Rewriter) -> None:
        """Axis by axis: a part of each window, reduced."""
        value = match.op.operands[0]
        rank = len(static_dims(value) or ())
        is_max = isinstance(match.op, _MAXIMA)
        cls = aten.AmaxDefault if is_max else aten.MeanDim
        sizes = zip(match.held, match.wanted, strict=True)
        for at, (size, count) in enumerate(sizes, start=rank - len(match.held)):
            if size == count:
                continue
            parts = [
                slice_axis(rw, value, at, i * size // count, -(-(i + 1) * size // count))
                for i in range(count)
            ]
            # A part of one element is what a reduction would give.
            whole = [p if dims(p.type)[at] == 1 else reduced(rw, cls, p, [at]) for p in parts]
            value = cat(rw, whole, at)
        result = match.op.results[0]
        rw.replace_value(result, value)
        rw.erase(match.op)


def is_uneven(sizes: list[tuple[int, int]]) -> bool:
    """Whether some windows are longer than others, or all have one element."""
    return any(held % count for held, count in sizes) or all(held == count for held, count in sizes)
