"""Lowerings of ops that read or write elements by index: GATHER, SCATTER, ARGMAX.

Indexed axes are mapped to the single axis that TOSA gathers along. Axes before them become its
batch, axes after them its channels. Several indexed axes are merged, and their scaled indices
added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, i1, i8, i32
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Dim
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.reductions import place_of_greatest
from stepwell.translate.lowerings.tosa.values import (
    WHOLE,
    Value,
    needs_floats,
    needs_known,
    where,
)
from stepwell.translate.rewrites.tosa.operators.building import elements


@recipe("from_the_front")
def from_the_front(weight: torch.Tensor, *, size: int) -> torch.Tensor:
    """Return indices in which negative ones, which count from the end, are made nonnegative."""
    return torch.where(weight < 0, weight + size, weight)


def counted_from_the_front(index: Value, size: int) -> Value:
    """Return a nonnegative index; a constant one is converted at compile time."""
    key = weight_key(index.ssa)
    if key is not None:
        derived_key = index.b.rw.weights.derive("from_the_front", [key], size=size)
        return Value(index.b.weight(derived_key), index.b)
    negative = index < 0
    return where(negative, index + size, index)


# -- rows ------------------------------------------------------------------------------------


@lowers("aten.embedding.default", to="tosa", bound=EXACT, sample=("10x4xf32", "2x3xi64"))
def embedding(x: Value, index: Value, *, out: Out) -> Value:
    """Gather rows of the first axis."""
    return _gathered(x, 0, [index], out, wraps=False)


@lowers("aten.index_select.default", to="tosa", bound=EXACT, sample=("4x5xf32", 1, "2xi64"))
def index_select(x: Value, dim: int, index: Value, *, out: Out) -> Value:
    """Gather rows of any axis."""
    return _gathered(x, x.axis(dim), [index], out, wraps=False)


@lowers("aten.index.Tensor", to="tosa", bound=EXACT, sample=("4x5xf32", ["2xi64"]))
def index_(x: Value, indices: Sequence[Value | None], *, out: Out) -> Value:
    """Lower `x[:, i, j]`: adjacent axes, by indices that may be negative."""
    first, listed = _together(indices)
    return _gathered(x, first, listed, out, wraps=True)


def _together(indices: Sequence[Value | None]) -> tuple[int, list[Value]]:
    """Return the first indexed axis, and the indices of it and the following axes."""
    at = [axis for axis, index in enumerate(indices) if index is not None]
    if not at or at[-1] - at[0] + 1 != len(at):
        refuse("the indexed axes are not adjacent")
    return at[0], [index for index in indices if index is not None]


def _are_rows(x: Value, first: int, indices: Sequence[Value]) -> None:
    """Refuse axes of dynamic size, and masks, which select a dynamic number of rows."""
    for index in indices:
        if index.dtype not in WHOLE:
            named = dtype_name(index.dtype)
            refuse(f"the indices are {named}: the number of selected elements is unknown")
    needs_known(x, range(first, first + len(indices)), "an indexed axis of size")


def _one_index(x: Value, first: int, indices: Sequence[Value], wraps: bool) -> Value:
    """Return the row number: the sum of every index times its stride in rows."""
    total: Value | None = None
    step = 1
    for axis, index in reversed(list(enumerate(indices, first))):
        held = counted_from_the_front(index, x.shape[axis]) if wraps else index
        part = held if step == 1 else held * step
        total = part if total is None else part + total
        step *= x.shape[axis]
    assert total is not None
    return total


def _for_batch(index: Value, batch: Dim) -> Value:
    """Repeat the indices for each batch: `[batch, W]`."""
    count = elements(index.shape)
    return index.reshape(1, count).tile((batch, count))


def _gathered(x: Value, first: int, indices: list[Value], out: Out, wraps: bool) -> Value:
    """Gather from a tensor of batch, rows and channels, then restore the axes."""
    _are_rows(x, first, indices)
    behind = first + len(indices)
    batch, channels = elements(x.shape[:first]), elements(x.shape[behind:])
    index = _for_batch(_one_index(x, first, indices, wraps), batch)
    values = x.reshape(batch, elements(x.shape[first:behind]), channels)
    made = values.made(t.GatherOp, (batch, index.shape[1], channels), index)
    return made.reshape(*out.shape)


@lowers("aten.index_put.default", to="tosa", bound=EXACT, sample=("4x3xf32", ["1xi64"], "1x3xf32"))
def scatter(x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """Lower to SCATTER of `[batch, rows written, channels]`, or SELECT of a number by a mask."""
    if accumulate:
        refuse("accumulate is set; SCATTER replaces, it does not add")
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) == 1 and given[0][1].dtype == i1 and elements(values.shape) == 1:
        axis, mask = given[0]
        behind = x.rank - axis - mask.rank
        return where(mask.reshape(*[1] * axis, *mask.shape, *[1] * behind), values, x)
    first, listed = _together(indices)
    _are_rows(x, first, listed)
    before, behind = x.shape[:first], x.shape[first + len(listed) :]
    row = _one_index(x, first, listed, wraps=True)
    batch, channels = elements(before), elements(behind)
    index = _for_batch(row, batch)
    whole = (*before, *row.shape, *behind)
    written = values.of_rank(len(whole)).tile(whole).reshape(batch, index.shape[1], channels)
    shape = (batch, elements(x.shape[first : first + len(listed)]), channels)
    return x.reshape(*shape).made(t.ScatterOp, shape, index, written).reshape(*x.shape)


@lowers("aten.argmax.default", "aten.argmin.default", to="tosa", bound=EXACT, sample=("2x5xf32", 1))
def argmax(x: Value, dim: int | None, *, op: Any, out: Out) -> Value:
    """Lower to ARGMAX: of the negated operand for argmin, of a mask of extrema for integers.

    ARGMAX returns the first of equal elements; a NaN is the largest. Without an axis, the tensor is
    flattened first.
    """
    if x.dtype not in (i8, *WHOLE):
        needs_floats(op, x)
    least = op.name == "aten.argmin.default"
    x = x.reshape(elements(x.shape)) if dim is None else x
    axis, held = x.axis(dim or 0), x.shape
    if held and (x.dtype in WHOLE or (least and x.dtype == i8)):
        x = _marked(x, axis, least)
    elif least:
        x = x.negated()
    return place_of_greatest(x, axis).reshape(*out.shape)


def _marked(x: Value, axis: int, least: bool) -> Value:
    """Return an int8 mask: 1 where an integer equals the maximum or minimum along an axis.

    int8 operands are cast to i32 for the comparison.
    """
    x = x.cast(i32) if x.dtype == i8 else x
    return x.equals(x.reduce(t.ReduceMinOp if least else t.ReduceMaxOp, axis)).cast(i8)


# -- along an axis ---------------------------------------------------------------------------


@lowers(
    "aten.gather.default",
    to="tosa",
    bound=EXACT,
    takes_symbols=False,
    sample=("2x5xf32", 1, "2x3xi64"),
)
def gather(x: Value, dim: int, index: Value, *, out: Out) -> Value:
    """Gather elements along one axis, by a separate index for every element of the result."""
    _has_axes(x)
    return along(x, x.axis(dim), index).reshape(*out.shape)


@lowers(
    "aten.take_along_dim.default",
    to="tosa",
    bound=EXACT,
    takes_symbols=False,
    sample=("2x5xf32", "2x3xi64", 1),
)
def take_along_dim(x: Value, index: Value, dim: int | None, *, out: Out) -> Value:
    """Lower `take_along_dim` as `gather`, with negative indices and broadcasting."""
    _has_axes(x)
    if dim is None:
        x, index = (value.reshape(elements(value.shape)) for value in (x, index))
    axis = x.axis(dim or 0)
    sizes = zip(x.shape, index.shape, strict=True)
    wanted = [other if i == axis else max(one, other) for i, (one, other) in enumerate(sizes)]
    size = x.shape[axis]
    index = counted_from_the_front(index, size).tile(wanted)
    x = x.tile([size if i == axis else n for i, n in enumerate(wanted)])
    return along(x, axis, index).reshape(*out.shape)


def _has_axes(x: Value) -> None:
    if not x.shape:
        refuse("the operand is a scalar, which has no axis")


def along(x: Value, axis: int, index: Value) -> Value:
    """Return `x` at `index` on one axis, both of one rank; other axes of x may be longer.

    GATHER has one list of rows for all channels, so the other axes become its batch. If the index
    is expanded over the axes after the indexed one, as in token selection, these remain channels.
    """
    shape = index.shape
    for i, size in enumerate(shape):
        if i != axis:
            x = x.narrow(i, 0, size)
    rows = _one_list(index, axis)
    if rows is not None:
        batch, channels = elements(shape[:axis]), elements(shape[axis + 1 :])
        values = x.reshape(batch, x.shape[axis], channels)
        made = (batch, shape[axis], channels)
        return values.made(t.GatherOp, made, rows.reshape(*made[:2])).reshape(*shape)
    values, rows = as_rows(x, axis), as_rows(index, axis)
    values = values.reshape(*values.shape, 1)
    return from_rows(values.made(t.GatherOp, (*rows.shape, 1), rows), axis, shape)


def as_rows(x: Value, axis: int) -> Value:
    """Reshape to `[elements of the other axes, elements of this one]`."""
    last = x.permute([*range(axis), *range(axis + 1, x.rank), axis])
    return last.reshape(elements(x.shape) // x.shape[axis], x.shape[axis])


def from_rows(rows: Value, axis: int, shape: Sequence[int]) -> Value:
    """Undo the reshape of `as_rows`."""
    last = len(shape) - 1
    order = [*range(axis), last, *range(axis, last)]
    return rows.reshape(*shape[:axis], *shape[axis + 1 :], shape[axis]).permute(order)


def _one_list(index: Value, axis: int) -> Value | None:
    """Return an index before its expansion over the axes after the indexed one, or None."""
    maker, shape = index.ssa.owner, index.shape
    if not isinstance(maker, t.TileOp | aten.ExpandDefault):
        return index if elements(shape[axis + 1 :]) == 1 else None
    before = Value(maker.operands[0], index.b)
    is_spread = before.shape == (*shape[: axis + 1], *[1] * (len(shape) - axis - 1))
    return before if is_spread else None


RULES = lowerings_of(__name__)
