"""`select_scatter` and `slice_scatter`: what is in front of the slice, the new values, what is behind.

Every second element, and the like, is an `index_put` instead.

Before:
    %y = aten.slice_scatter.default(%x, %s, 1, 1, 3) : (tensor<2x5xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 0, 1, 1) : (tensor<2x5xf32>) -> tensor<2x1xf32>
    %1 = aten.slice.Tensor(%x, 1, 3, 5, 1) : (tensor<2x5xf32>) -> tensor<2x2xf32>
    %y = aten.cat.default([%0, %s, %1], 1) : (tensor<2x1xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import cat, emit, slice_axis, static_dims, view
from stepwell.translate.rewrites.slices.written_place import WRITES, Place, place_of


@dataclass(frozen=True)
class Written:
    """A write into a value of known sizes, and its place."""

    op: SchemaOp
    shape: tuple[int, ...]
    place: Place


@dataclass(frozen=True)
class WriteSliceByCat(Rewrite[Written]):
    """`select_scatter` and `slice_scatter` to slices and `cat`, or to `index_put`."""

    name: ClassVar[str] = "write-slice-by-cat-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = WRITES

    def match(self, op: SchemaOp, program: Program) -> Written | Refusal | None:
        """Known sizes and places, of one element type."""
        place, shape = place_of(op), static_dims(op.operands[0])
        if isinstance(place, Refusal):
            return place
        assert shape is not None
        return Written(op, shape, place)

    def build(self, match: Written, rw: Rewriter) -> None:
        """Three parts, or fewer; or the rows that are written."""
        x, place, at = match.op.operands[0], match.place, match.place.axis
        if place.step != 1:
            places = torch.arange(place.start, place.stop, place.step)
            made: list[SSAValue | None] = [*[None] * at, rw.constant(places, "rows")]
            put = aten.IndexPutDefault.make(x, made, match.op.operands[1])
            rw.replace(match.op, [emit(rw, put)])
            return
        shape = list(match.shape)
        shape[at] = place.stop - place.start
        parts = [view(rw, match.op.operands[1], shape)] if shape[at] else []
        if place.start:
            parts.insert(0, slice_axis(rw, x, at, 0, place.start))
        if place.stop < match.shape[at]:
            parts.append(slice_axis(rw, x, at, place.stop, match.shape[at]))
        rw.replace(match.op, [cat(rw, parts, at)])
