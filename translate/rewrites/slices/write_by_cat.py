"""Replace writes at constant positions of one axis by a concatenation of written and kept parts.

`o[:, t] = …` in a loop over t is a chain of `select_scatter`, each of which copies everything. The
last op of a chain becomes one concatenation of the written parts and of the elements that no op
wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import StateOp
from stepwell.ir.dtypes import is_float
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import axis

WRITES = (aten.SelectScatterDefault, aten.SliceScatterDefault)
"""Ops that return their first operand with a part of it replaced by the second."""


@dataclass(frozen=True)
class AxisSlice:
    """Every `step`th element of `[start, stop)` of an axis."""

    axis: int
    start: int
    stop: int
    step: int = 1


MOST_APART = 16
"""The most elements that are written one by one because others are between them."""


@dataclass(frozen=True)
class Part:
    """The elements `[start, stop)` of the axis, copied from `source` at offset `begin`."""

    start: int
    stop: int
    source: SSAValue
    begin: int


@lowers(
    "aten.select_scatter.default",
    "aten.slice_scatter.default",
    to="aten",
    phases={
        "xnnpack/normalize": {},
        "tosa/decompose": {"kernels": False},
        "tosa/arrange": {"kernels": False},
    },
    sample="""
    %w = aten.slice_scatter.default(%x, %s, 1, 1, 3) : (tensor<2x5xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
    %y = aten.select_scatter.default(%w, %t, 1, 0) : (tensor<2x5xf32>, tensor<2xf32>) -> tensor<2x5xf32>
    """,
)
def write_by_cat(
    x: Value, new: Value, *, op: SchemaOp, out: Out, b: Rewriter, kernels: bool = True
) -> Value | None:
    """Replace a chain of `select_scatter` and `slice_scatter` by slices and one `cat`.

    `kernels`: whether the target has kernels that write in place, to which writes of integers, to
    states, and of many separate rows are left. Otherwise, separate rows are written by an
    `index_put`.
    """
    place = no_refusal(place_of(op))
    at = place.axis
    if place.step != 1 and not kernels:
        rows = b.constant(torch.arange(place.start, place.stop, place.step), "rows")
        return x.call(aten.IndexPutDefault, [*[None] * at, rows], new)
    no_refusal(_range_of(op))
    if any(_goes_on(use.operation, op, at) for use in op.results[0].uses):
        return None
    if kernels and not is_float(out.dtype):
        refuse("integers are written by a kernel, which copies once")
    writes = [op]
    while isinstance(base := writes[-1].operands[0].owner, SchemaOp) and _writes(base, at):
        writes.append(base)
    source = writes[-1].operands[0]
    if kernels and isinstance(source.owner, StateOp):
        refuse("a state is written in place")
    size = dims(source.type)[at]
    assert isinstance(size, int)
    parts = [Part(0, size, source, 0)]
    for write in reversed(writes):
        for part in _parts_of(no_refusal(_range_of(write)), write.operands[1]):
            parts = [*_outside(parts, part.start, part.stop), part]
    values: list[Value] = []
    for part in sorted(_held(parts), key=lambda part: part.start):
        value = Value(part.source, b)
        if value.rank < len(out.shape):
            value = value.view(*out.shape[:at], 1, *out.shape[at + 1 :])
        values.append(value.slice(at, part.begin, part.begin + part.stop - part.start))
    return cat(values, at)


def place_of(op: SchemaOp) -> AxisSlice | Refusal:
    """Return the range that one of the ops in `WRITES` replaces, on an axis of static size."""
    shape = dims(op.operands[0].type)
    at = axis(op.arg("dim"), len(shape))
    if not isinstance(size := shape[at], int):
        return Refusal("the size of the axis is symbolic")
    if element(op.operands[0].type) != element(op.operands[1].type):
        return Refusal("the operands have several dtypes")
    if isinstance(op, aten.SelectScatterDefault):
        index = op.arg("index")
        if not isinstance(index, int):
            return Refusal("the index is known only at run time")
        start = index % size
        return AxisSlice(at, start, start + 1)
    bounds = (op.arg("start"), op.arg("end"), op.arg("step"))
    if not all(bound is None or isinstance(bound, int) for bound in bounds):
        return Refusal("a bound is known only at run time")
    start, stop, step = slice(*bounds).indices(size)
    return AxisSlice(at, start, max(start, stop), step)


def _range_of(op: SchemaOp) -> AxisSlice | Refusal:
    """Return the written range, if the written value is as long; one with gaps must be short."""
    place = place_of(op)
    if isinstance(place, Refusal):
        return place
    rows = len(range(place.start, place.stop, place.step))
    if place.step != 1 and rows > MOST_APART:
        return Refusal(f"{rows} separate elements would each be a slice; the most is {MOST_APART}")
    whole = [*dims(op.operands[0].type)]
    whole[place.axis : place.axis + 1] = [rows] * isinstance(op, aten.SliceScatterDefault)
    if [*dims(op.operands[1].type)] != whole:
        return Refusal("the size of the written value is symbolic")
    return place


def _parts_of(place: AxisSlice, value: SSAValue) -> list[Part]:
    """Return the written parts: one, or one per element if other elements are in between."""
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


RULES = lowerings_of(__name__)
