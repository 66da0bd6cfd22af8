"""Spell `repeat`, `tile` and `repeat_interleave` as a view, one expand and a view.

An axis of n elements repeated r times is the axes (r, n) of an expand, flattened; elements
repeated each r times are the axes (n, r). Axes of size 1 need no view.

Before:
    %a = aten.repeat.default(%x, [3, 4]) : (tensor<2x1xf32>) -> tensor<6x4xf32>
    %b = aten.repeat_interleave.self_int(%x, 3, 0) : (tensor<2x1xf32>) -> tensor<6x1xf32>
    func.return %a, %b : tensor<6x4xf32>, tensor<6x1xf32>
After:
    %0 = aten.view.default(%x, [1, 2, 1]) : (tensor<2x1xf32>) -> tensor<1x2x1xf32>
    %1 = aten.expand.default(%0, [3, 2, 4]) : (tensor<1x2x1xf32>) -> tensor<3x2x4xf32>
    %a = aten.view.default(%1, [6, 4]) : (tensor<3x2x4xf32>) -> tensor<6x4xf32>
    %2 = aten.view.default(%x, [2, 1, 1]) : (tensor<2x1xf32>) -> tensor<2x1x1xf32>
    %3 = aten.expand.default(%2, [2, 3, 1]) : (tensor<2x1x1xf32>) -> tensor<2x3x1xf32>
    %b = aten.view.default(%3, [6, 1]) : (tensor<2x3x1xf32>) -> tensor<6x1xf32>
    func.return %a, %b : tensor<6x4xf32>, tensor<6x1xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN, Size
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import axis, expand, view


@dataclass(frozen=True)
class Repeated:
    """View as `units`, expand to `sizes`, view as the result."""

    op: SchemaOp
    units: tuple[Dim, ...]
    sizes: tuple[Dim, ...]


@dataclass(frozen=True)
class RepeatToExpand(Rewrite[Repeated]):
    """Any op that repeats a tensor along its axes to `aten.expand.default`."""

    name: ClassVar[str] = "repeat-to-expand"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.RepeatDefault,
        aten.TileDefault,
        aten.RepeatInterleaveSelfInt,
    )

    def match(self, op: SchemaOp, program: Program) -> Repeated | Refusal | None:
        """Counts are numbers, and so is each size that is repeated."""
        shape = dims(op.operands[0].type)
        if UNKNOWN in shape:
            return Refusal("the repeated shape is not known")
        if isinstance(op, aten.RepeatInterleaveSelfInt):
            return self._interleaved(op, shape)
        counts = op.arg("dims" if isinstance(op, aten.TileDefault) else "repeats")
        if any(isinstance(count, SSAValue) for count in counts):
            return Refusal("the counts are known only at run time")
        rank = max(len(shape), len(counts))
        shape = (1,) * (rank - len(shape)) + shape
        counts = [1] * (rank - len(counts)) + list(counts)
        units: list[Dim] = []
        sizes: list[Dim] = []
        for size, count in zip(shape, counts, strict=True):
            if isinstance(size, Size):
                if count != 1:
                    return Refusal("an axis of symbolic size is repeated")
                units, sizes = [*units, size], [*sizes, size]
            elif count != 1 and size != 1:
                units, sizes = [*units, 1, size], [*sizes, count, size]
            else:
                units, sizes = [*units, size], [*sizes, size * count]
        return Repeated(op, tuple(units), tuple(sizes))

    def _interleaved(self, op: SchemaOp, shape: Sequence[Dim]) -> Repeated | Refusal:
        count, at = op.arg("repeats"), op.arg("dim")
        if isinstance(count, SSAValue):
            return Refusal("the count is known only at run time")
        if at is None:
            return Refusal("repeat_interleave without a dim flattens its operand first")
        at = axis(at, len(shape))
        if isinstance(shape[at], Size):
            return Refusal("an axis of symbolic size is repeated")
        units = (*shape[: at + 1], 1, *shape[at + 1 :])
        sizes = (*shape[: at + 1], count, *shape[at + 1 :])
        return Repeated(op, units, sizes)

    def build(self, match: Repeated, rw: Rewriter) -> None:
        """Write view, expand and view, as far as they do something."""
        value, result = match.op.operands[0], match.op.results[0]
        repeated = expand(rw, view(rw, value, match.units), match.sizes)
        rw.replace(match.op, [view(rw, repeated, dims(result.type))])
