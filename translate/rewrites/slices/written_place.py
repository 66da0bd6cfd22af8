"""The range of one axis that `select_scatter` and `slice_scatter` write."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element
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


def place_of(op: SchemaOp) -> AxisSlice | Refusal:
    """Return the range that one of `WRITES` replaces, on an axis of known size."""
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
