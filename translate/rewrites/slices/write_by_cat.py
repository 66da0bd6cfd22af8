"""Replace writes at constant positions of one axis by a concatenation of written and kept parts.

`o[:, t] = …` in a loop over t is a chain of `select_scatter`, each of which copies everything. The
last op of a chain becomes one concatenation of the written parts and of the elements that no op
wrote.

Before:
    %w = aten.slice_scatter.default(%x, %s, 1, 1, 3) : (tensor<2x5xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
    %y = aten.select_scatter.default(%w, %t, 1, 0) : (tensor<2x5xf32>, tensor<2xf32>) -> tensor<2x5xf32>
After:
    %0 = aten.view.default(%t, [2, 1]) : (tensor<2xf32>) -> tensor<2x1xf32>
    %1 = aten.slice.Tensor(%x, 1, 3, 5, 1) : (tensor<2x5xf32>) -> tensor<2x2xf32>
    %y = aten.cat.default([%0, %s, %1], 1) : (tensor<2x1xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten import SliceScatterDefault as SliceScatter
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import StateOp
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import cat, slice_axis, view
from stepwell.translate.rewrites.slices.written_place import WRITES, AxisSlice, place_of

MOST_APART = 16
"""The most elements that are written one by one because others are between them."""


@dataclass(frozen=True)
class Part:
    """Elements `[start, stop)` of the axis, which are those of `source` from `begin` on."""

    start: int
    stop: int
    source: SSAValue
    begin: int


@dataclass(frozen=True)
class ConcatenatedParts:
    """The parts of axis `at` in order."""

    op: SchemaOp
    at: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class WriteByCat(Rewrite[ConcatenatedParts]):
    """Chains of `select_scatter` and `slice_scatter` of floats to slices and one `cat`."""

    name: ClassVar[str] = "write-by-cat"
    anchors: ClassVar[tuple[type[Operation], ...]] = WRITES

    def match(self, op: SchemaOp, program: Program) -> ConcatenatedParts | Refusal | None:
        """Guards: floats of known sizes at known positions; no later write includes this one."""
        place = _range_of(op)
        if isinstance(place, Refusal):
            return place
        at = place.axis
        if any(_goes_on(use.operation, op, at) for use in op.results[0].uses):
            return None
        if not is_float(element(op.results[0].type)):
            return Refusal("integers are written by a kernel, which copies once")
        writes = [op]
        while isinstance(base := writes[-1].operands[0].owner, SchemaOp) and _writes(base, at):
            writes.append(base)
        source = writes[-1].operands[0]
        if isinstance(source.owner, StateOp):
            return Refusal("a state is written in place")
        size = dims(source.type)[at]
        assert isinstance(size, int)
        parts = [Part(0, size, source, 0)]
        for write in reversed(writes):
            found = _range_of(write)
            assert not isinstance(found, Refusal)
            for new in _parts_of(found, write.operands[1]):
                parts = [*_outside(parts, new.start, new.stop), new]
        return ConcatenatedParts(op, at, tuple(sorted(_held(parts), key=lambda part: part.start)))

    def build(self, match: ConcatenatedParts, rw: Rewriter) -> None:
        """Build a slice of each part that is not whole, and the concatenation."""
        whole = dims(match.op.results[0].type)
        values: list[SSAValue] = []
        for part in match.parts:
            value = part.source
            if len(dims(value.type)) < len(whole):
                value = view(rw, value, [*whole[: match.at], 1, *whole[match.at + 1 :]])
            length = part.stop - part.start
            values.append(slice_axis(rw, value, match.at, part.begin, part.begin + length))
        rw.replace(match.op, [cat(rw, values, match.at)])


def _range_of(op: SchemaOp) -> AxisSlice | Refusal:
    """Return the written range if the value is as large; with gaps it has few elements."""
    place = place_of(op)
    if isinstance(place, Refusal):
        return place
    rows = len(range(place.start, place.stop, place.step))
    if place.step != 1 and rows > MOST_APART:
        return Refusal(f"{rows} elements that are not contiguous are written: that many slices")
    whole = [*dims(op.operands[0].type)]
    whole[place.axis : place.axis + 1] = [rows] * isinstance(op, SliceScatter)
    if [*dims(op.operands[1].type)] != whole:
        return Refusal("the size of the written value is symbolic")
    return place


def _parts_of(place: AxisSlice, value: SSAValue) -> list[Part]:
    """Return the written parts: all at once, or each element where others are between them."""
    if place.step == 1:
        return [Part(place.start, place.stop, value, 0)]
    rows = range(place.start, place.stop, place.step)
    return [Part(row, row + 1, value, at) for at, row in enumerate(rows)]


def _writes(op: Operation, at: int) -> bool:
    if not isinstance(op, WRITES):
        return False
    place = _range_of(op)
    return isinstance(place, AxisSlice) and place.axis == at


def _goes_on(reader: Operation, op: SchemaOp, at: int) -> bool:
    return _writes(reader, at) and reader.operands[0] == op.results[0]


def _outside(parts: list[Part], start: int, stop: int) -> list[Part]:
    """Return the parts before and after a range."""
    left = [Part(p.start, min(p.stop, start), p.source, p.begin) for p in parts]
    right = [
        Part(max(p.start, stop), p.stop, p.source, p.begin + max(p.start, stop) - p.start)
        for p in parts
    ]
    return _held([*left, *right])


def _held(parts: list[Part]) -> list[Part]:
    return [part for part in parts if part.start < part.stop]
