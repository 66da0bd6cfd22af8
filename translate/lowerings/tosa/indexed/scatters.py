"""Lowerings of `scatter`, `scatter_add`, `scatter_reduce`, `index_add` along an axis.

If the indices are constant and no position is written twice, the op becomes a SCATTER; for sums, a
GATHER reads the old elements first. Otherwise the writes are done one after another, in PyTorch's
order, by a comparison of each index with all positions; long lists of sums become a single
reduction. TOSA leaves two writes to one position undefined, so no such SCATTER is generated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import dtype_name, f32, i1, i8, i16, i32, i64
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.indexed.indices import as_rows, from_rows
from stepwell.translate.lowerings.tosa.values import Value, maximum, minimum, where
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, elements

MOST_WRITES = 32
"""The most writes that are made one after the other."""

MOST_COMPARED = 1 << 24
"""The most comparisons of a position with an index in one reduction."""

Combined = Callable[[Value, Value], Value] | None
"""The function that combines a written number with the stored one; None replaces it."""

REDUCTIONS: dict[str, Combined] = {
    "sum": operator.add,
    "prod": operator.mul,
    "amax": maximum,
    "amin": minimum,
}
"""The functions of `scatter_reduce`."""


@lowers(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter_add.default",
    "aten.scatter_reduce.two",
    "aten.index_add.default",
    to="tosa",
    bound=roundings("long sums are added up in another order"),
    takes_symbols=False,
    sample=("2x5xf32", 1, "2x1xi64", "2x1xf32"),
)
def scatter_along(x: Value, dim: int, index: Value, source: Any, *, op: Any) -> Value:
    """Lower a scatter on rows along the axis, then restore the axes."""
    kind, axis = op.name.split(".")[1], x.axis(dim)
    is_value = op.name == "aten.scatter.value"
    held = (i1, i8, i16, i64) if kind == "scatter" else ()
    if x.dtype not in (*FLOATS, i32, *held) or not x.shape:
        refuse(f"the op writes to a scalar, or to {dtype_name(x.dtype)}")
    how = _combination(op, x, axis, index)
    writes = elements(index.shape) if kind == "index_add" else index.shape[axis]
    is_once = writes == 1 or _is_distinct(index, 0 if kind == "index_add" else axis)
    if not is_once or x.dtype == i1:
        count = elements(x.shape) * writes
        if count > MOST_COMPARED:
            refuse(f"the indices would take {count} comparisons, more than {MOST_COMPARED}")
        is_sum = how is operator.add and x.is_float
        if writes > MOST_WRITES and not is_sum and not is_value:
            refuse(f"{writes} writes to indices that may be equal")
    if kind == "index_add":
        alone = [size if i == axis else 1 for i, size in enumerate(source.shape)]
        index = index.reshape(*alone).tile(source.shape)
    rows, places = as_rows(x, axis), as_rows(index, axis)
    if is_value:
        source = Value(x.b.number(source, 2, x.dtype), x.b).tile(places.shape)
    else:
        for i, size in enumerate(index.shape):
            source = source.narrow(i, 0, size)
        source = as_rows(source, axis)
    if is_once and x.dtype != i1:
        y = written(rows, places, source, how)
    elif is_value:
        y = _marked(rows, places, source)
    elif writes <= MOST_WRITES:
        y = _one_by_one(rows, places, source, how)
    else:
        y = _added(rows, places, source)
    return from_rows(y, axis, x.shape)


def _combination(op: Any, x: Value, axis: int, index: Value) -> Combined:
    """Return the function that combines old and new values; refuse indices of partial shape."""
    if op.name == "aten.index_add.default":
        if op.arg("alpha") != 1:
            refuse(f"alpha is {op.arg('alpha')}, not 1")
        return operator.add
    sizes = zip(index.shape, x.shape, strict=True)
    if any(n != held for i, (n, held) in enumerate(sizes) if i != axis):
        refuse("the index covers only a part of another axis")
    if op.name != "aten.scatter_reduce.two":
        return operator.add if op.name == "aten.scatter_add.default" else None
    if op.arg("reduce") not in REDUCTIONS:
        refuse(f"the op reduces the written values by {op.arg('reduce')}")
    if not op.arg("include_self"):
        refuse("include_self is false: the old value must be ignored")
    return REDUCTIONS[op.arg("reduce")]


def _is_distinct(index: Value, axis: int) -> bool:
    """Whether the indices are constant and no position is written twice."""
    constant = index.constant
    return constant is not None and bool((constant.sort(axis).values.diff(dim=axis) != 0).all())


def written(x: Value, places: Value, source: Value, how: Combined) -> Value:
    """Return a SCATTER into `[rows, K]`; the positions in each row of `places` must be distinct."""
    values, given = x.reshape(*x.shape, 1), source.reshape(*places.shape, 1)
    if how is not None:
        given = how(values.made(t.GatherOp, given.shape, places), given)
    return values.made(t.ScatterOp, values.shape, places, given).reshape(*x.shape)


def _found(places: Value, length: int) -> Value:
    """Return `i1[rows, W, length]`: whether each index equals each position.

    A GATHER from 0, 1, 2, … converts indices, also 64-bit ones, to int32.
    """
    rows, count = places.shape
    line = torch.arange(length, dtype=torch.int32).reshape(1, -1, 1)
    numbers = places.tensor(line).tile((rows, length, 1))
    index = numbers.made(t.GatherOp, (rows, count, 1), places)
    return index.equals(numbers.narrow(0, 0, 1).reshape(1, 1, length))


def _marked(x: Value, places: Value, source: Value) -> Value:
    """Return a mask of the positions that any index selects."""
    found = _found(places, x.shape[1]).reduce(t.ReduceAnyOp, 1)
    value = source.narrow(1, 0, 1)
    return where(found.reshape(*x.shape), value, x)


def _one_by_one(x: Value, places: Value, source: Value, how: Combined) -> Value:
    """Apply the writes one after another."""
    found = _found(places, x.shape[1])
    for number in range(places.shape[1]):
        here = found.narrow(1, number, 1).reshape(*x.shape)
        given = source.narrow(1, number, 1)
        x = where(here, given if how is None else how(x, given), x)
    return x


def _added(x: Value, places: Value, source: Value) -> Value:
    """Add all writes to a position in one f32 sum, without products by zero."""
    given = source.single().reshape(x.shape[0], places.shape[1], 1)
    chosen = where(_found(places, x.shape[1]), given, Value(x.b.number(0, 3, f32), x.b))
    total = chosen.sum(1).reshape(*x.shape)
    return (x.single() + total).cast(x.dtype)


RULES = lowerings_of(__name__)
