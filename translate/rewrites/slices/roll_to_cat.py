"""Spell `roll` as two slices and a concatenation an axis.

Swin's shifted windows roll the feature map by half a window, both ways. No target has a roll.
`flip` stays: only a target without a gather picks element by element (`pick-by-slices`).

Before:
    %y = aten.roll.default(%x, [-1, 2], [0, 1]) : (tensor<4x6xf32>) -> tensor<4x6xf32>
After:
    %0 = aten.slice.Tensor(%x, 0, 1, 4, 1) : (tensor<4x6xf32>) -> tensor<3x6xf32>
    %1 = aten.slice.Tensor(%x, 0, 0, 1, 1) : (tensor<4x6xf32>) -> tensor<1x6xf32>
    %2 = aten.cat.default([%0, %1], 0) : (tensor<3x6xf32>, tensor<1x6xf32>) -> tensor<4x6xf32>
    %3 = aten.slice.Tensor(%2, 1, 4, 6, 1) : (tensor<4x6xf32>) -> tensor<4x2xf32>
    %4 = aten.slice.Tensor(%2, 1, 0, 4, 1) : (tensor<4x6xf32>) -> tensor<4x4xf32>
    %y = aten.cat.default([%3, %4], 1) : (tensor<4x2xf32>, tensor<4x4xf32>) -> tensor<4x6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import (
    axis,
    cat,
    element_count,
    slice_axis,
    static_dims,
    view,
)


@dataclass(frozen=True)
class Rolled:
    """Axis `at` of the tensor seen as `shape` starts at element `start`, for each pair."""

    op: SchemaOp
    shape: tuple[int, ...]
    starts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RollToCat(Rewrite[Rolled]):
    """`aten.roll` to slices and `aten.cat`."""

    name: ClassVar[str] = "roll-to-cat"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.RollDefault, aten.FlipDefault)

    def match(self, op: SchemaOp, program: Program) -> Rolled | Refusal | None:
        """Sizes and shifts are numbers."""
        if isinstance(op, aten.FlipDefault):
            return Refusal("a flip written in slices would cost more than a gather")
        shape = static_dims(op.operands[0])
        shifts, at = op.arg("shifts"), op.arg("dims")
        if shape is None:
            return Refusal("the rolled shape is symbolic")
        if any(isinstance(shift, SSAValue) for shift in shifts):
            return Refusal("the shift is known only at run time")
        if element_count(shape) == 0:
            return Rolled(op, shape, ())
        if not at:
            shape, at = (element_count(shape),), [0]
        starts: dict[int, int] = {}
        for shift, dim in zip(shifts, at, strict=True):
            where = axis(dim, len(shape))
            starts[where] = (starts.get(where, 0) - shift) % shape[where]
        return Rolled(op, shape, tuple((d, s) for d, s in starts.items() if s))

    def build(self, match: Rolled, rw: Rewriter) -> None:
        """Write two slices and a cat for each axis."""
        value = view(rw, match.op.operands[0], match.shape)
        for at, start in match.starts:
            size = match.shape[at]
            back = slice_axis(rw, value, at, start, size)
            value = cat(rw, [back, slice_axis(rw, value, at, 0, start)], at)
        rw.replace(match.op, [view(rw, value, dims(match.op.results[0].type))])
