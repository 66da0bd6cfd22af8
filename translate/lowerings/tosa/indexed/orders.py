"""Lowerings of `topk` and `sort`: by repeated ARGMAX, or by counting preceding elements.

`topk` of few elements repeatedly removes the maximum by a GATHER of the rest, so that -inf and NaN
are handled like other elements. (For the smallest elements of long rows, inf and NaN count as
equal.) Short rows are ordered at once: an element's rank is the number of those before it, and
SCATTER moves each to its rank. Equal elements keep their order, as in PyTorch's `sort`; PyTorch
does not define which of equal elements `topk` takes first.
"""

from __future__ import annotations

from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.indexed.indices import as_rows, from_rows
from stepwell.translate.lowerings.tosa.reductions import place_of_greatest
from stepwell.translate.lowerings.tosa.values import Value, concat, needs_floats, where
from stepwell.translate.rewrites.tosa.operators.building import shape_of

LONGEST_ORDERED = 256
"""Rows up to this length are ordered at once, by the square of it in comparisons."""

MOST_TAKEN = 32
"""The most elements that are removed one by one."""


@lowers(
    "aten.topk.default",
    "aten.sort.default",
    "aten.sort.stable",
    "aten.argsort.default",
    to="tosa",
    bound=EXACT,
    takes_symbols=False,
    sample=("2x3xf32", 1),
)
def order(x: Value, *, op: Any) -> tuple[Value, ...]:
    """Lower `topk` and `sort` of floats, on rows along the axis."""
    if not x.shape:
        refuse("the operand is a scalar, which is in order")
    is_topk, axis = op.name == "aten.topk.default", x.axis(op.arg("dim"))
    length = x.shape[axis]
    wanted = op.arg("k") if is_topk else length
    if length > LONGEST_ORDERED and wanted > MOST_TAKEN:
        refuse(f"the op sorts {wanted} of {length} elements; TOSA has no operator that sorts")
    needs_floats(op, x)
    from_the_top = bool(op.arg("largest" if is_topk else "descending"))
    ordered = _taken if length > LONGEST_ORDERED or wanted == 1 else _ranked
    values, places = ordered(as_rows(x, axis), wanted, from_the_top)
    shape = shape_of(op.results[0])
    found = (from_rows(values, axis, shape), from_rows(places, axis, shape))
    return found[-len(op.results) :]


def _taken(x: Value, wanted: int, from_the_top: bool) -> tuple[Value, Value]:
    """Return the `taken` largest elements and their indices, by repeated ARGMAX."""
    rows, length = x.shape
    keys = x if from_the_top else -x
    places = _numbers(x)
    values: list[Value] = []
    found: list[Value] = []
    for taken in range(wanted):
        at = place_of_greatest(keys, 1, ignoring_nan=not from_the_top).reshape(rows, 1)
        values.append(_at(keys, at))
        found.append(_at(places, at) if taken else at)
        if taken + 1 < wanted:
            left = x.tensor(torch.arange(length - taken - 1).reshape(1, -1))
            is_in_front = at > left
            behind = where(is_in_front, left, left + 1)
            keys, places = _at(keys, behind), _at(places, behind)
    joined = _beside(values)
    return (joined if from_the_top else -joined), _beside(found)


def _ranked(x: Value, wanted: int, from_the_top: bool) -> tuple[Value, Value]:
    """Move every element to its rank: the count of greater elements and of equal ones before it."""
    rows, length = x.shape
    keys = x.single()
    one, other = keys.reshape(rows, length, 1), keys.reshape(rows, 1, length)
    before = other > one if from_the_top else one > other
    # NaN is greater than all numbers, and equal to itself.
    lost_one, lost_other = one.differs(one), other.differs(other)
    greatest, rest = (lost_other, lost_one) if from_the_top else (lost_one, lost_other)
    only = greatest & ~rest
    both = lost_one & lost_other
    same = one.equals(other) | both
    in_front = x.tensor(torch.ones(length, length, dtype=torch.bool).tril(-1)[None])
    tied = same & in_front
    ahead = before | only | tied
    counted = where(ahead, *(Value(x.b.number(n, 3, f32), x.b) for n in (1, 0)))
    rank = counted.sum(2).reshape(rows, length).cast(i32)
    places = _placed(_numbers(x), rank)
    values = _placed(x, rank)
    return values.narrow(1, 0, wanted), places.narrow(1, 0, wanted)


def _numbers(x: Value) -> Value:
    """Return 0, 1, 2, … in each row."""
    return x.tensor(torch.arange(x.shape[1]).reshape(1, -1)).tile(x.shape)


def _at(x: Value, index: Value) -> Value:
    """Gather `[rows, W]` from `[rows, K]`."""
    made = x.reshape(*x.shape, 1).made(t.GatherOp, (*index.shape, 1), index)
    return made.reshape(*index.shape)


def _placed(x: Value, index: Value) -> Value:
    """Scatter elements to their indices, which are distinct in each row."""
    values = x.reshape(*x.shape, 1)
    return values.made(t.ScatterOp, values.shape, index, values).reshape(*x.shape)


def _beside(columns: list[Value]) -> Value:
    return columns[0] if len(columns) == 1 else concat(columns, 1)


RULES = lowerings_of(__name__)
