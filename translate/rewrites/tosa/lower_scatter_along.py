"""`scatter`, `scatter_add`, `scatter_reduce`, `index_add`: elements written or added along one axis.

Where no place is written twice, which constant indices show, it is a SCATTER (of the sum with what
a GATHER finds there). Otherwise the writes are made one after the other, in torch's order, each where
a comparison finds its place; long lists of sums are added up by one reduction. TOSA leaves open what
a SCATTER to one place twice does, so that it is never written.

Before:
    %y = aten.scatter.src(%x, 1, %i, %s) : (tensor<2x5xf32>, tensor<2x1xi64>, tensor<2x1xf32>) -> tensor<2x5xf32>
After:
    %0 = tosa.const_shape {values = dense<[2, 5, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %1 = tosa.reshape %x, %0 : (tensor<2x5xf32>, !tosa.shape<3>) -> tensor<2x5x1xf32>
    %2 = tosa.const_shape {values = dense<[2, 1, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %3 = tosa.reshape %s, %2 : (tensor<2x1xf32>, !tosa.shape<3>) -> tensor<2x1x1xf32>
    %4 = tosa.scatter %1, %i, %3 : (tensor<2x5x1xf32>, tensor<2x1xi64>, tensor<2x1x1xf32>) -> tensor<2x5x1xf32>
    %5 = tosa.const_shape {values = dense<[2, 5]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %4, %5 : (tensor<2x5x1xf32>, !tosa.shape<2>) -> tensor<2x5xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, f32, i1, i8, i16, i32, i64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore
from stepwell.translate.lowerings.tosa import indices
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.rewrites.tosa.building import (
    FLOATS,
    Builder,
    elements,
    narrow,
    narrowed,
    shape_of,
)
from stepwell.translate.rewrites.tosa.lowering import Lowerable, LowerToTosa

MOST_WRITES = 32
"""The most writes that are made one after the other."""

MOST_COMPARED = 1 << 24
"""The most comparisons of a place with an index that one reduction runs over."""

REDUCTIONS: dict[str, type[TosaOp]] = {
    "sum": t.AddOp,
    "prod": t.MulOp,
    "amax": t.MaximumOp,
    "amin": t.MinimumOp,
}
"""What `scatter_reduce` combines with."""


@dataclass(frozen=True)
class LowerScatterAlong(LowerToTosa):
    """`scatter` and its kin."""

    name: ClassVar[str] = "lower-scatter-along-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ScatterSrc,
        aten.ScatterValue,
        aten.ScatterAddDefault,
        aten.ScatterReduceTwo,
        aten.IndexAddDefault,
    )
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = roundings("long sums are added up in another order")

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """As for every lowering; then whether places are written once, or seldom."""
        found = super().match(op, program)
        x = op.operands[0]
        if not isinstance(found, Lowerable):
            return found
        if is_distinct(op, program.weights) and element(x.type) != i1:
            return found
        count = elements(shape_of(x)) * _writes(op)
        if count > MOST_COMPARED:
            return Refusal(f"its places would take {count} comparisons, above {MOST_COMPARED}")
        is_sum = combination(op) is t.AddOp and element(x.type) in FLOATS
        if _writes(op) > MOST_WRITES and not is_sum and not isinstance(op, aten.ScatterValue):
            return Refusal(f"{_writes(op)} writes to places that may be the same")
        return found

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """An index as long as the tensor but on its own axis; what TOSA combines with."""
        x, index = op.operands[0], _index(op)
        shape, axis = shape_of(x), _axis(op)
        writes = isinstance(op, aten.ScatterSrc | aten.ScatterValue)
        held = (i1, i8, i16, i64) if writes else ()
        if element(x.type) not in (*FLOATS, i32, *held) or not shape:
            return Refusal(f"it writes into a scalar, or {dtype_name(element(x.type))}")
        if isinstance(op, aten.IndexAddDefault):
            return None if op.arg("alpha") == 1 else Refusal(f"alpha is {op.arg('alpha')}, not 1")
        sizes = zip(shape_of(index), shape, strict=True)
        if any(n != held for i, (n, held) in enumerate(sizes) if i != axis):
            return Refusal("the index leaves out a part of another axis")
        if not isinstance(op, aten.ScatterReduceTwo):
            return None
        if op.arg("reduce") not in REDUCTIONS:
            return Refusal(f"it reduces what is written by {op.arg('reduce')}")
        return (
            None
            if op.arg("include_self")
            else Refusal("include_self is false: what stood there does not count")
        )

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Rows of the axis, what they become, and the axes as they were."""
        x, axis = op.operands[0], _axis(op)
        shape = shape_of(x)
        index = _index(op)
        if isinstance(op, aten.IndexAddDefault):
            index = _across(index, axis, shape_of(op.operands[2]), b)
        rows, places = (
            indices.as_rows(Value(x, b), axis).ssa,
            indices.as_rows(Value(index, b), axis).ssa,
        )
        if isinstance(op, aten.ScatterValue):
            given = b.number(op.arg("value"), 2, element(x.type))
            source = indices.spread(Value(given, b), shape_of(places)).ssa
        else:
            source = op.operands[2]
            for i, size in enumerate(shape_of(index)):
                source = narrow(source, i, 0, size, b)
            source = indices.as_rows(Value(source, b), axis).ssa
        if is_distinct(op, b.rw.weights) and element(x.type) != i1:
            y = written(rows, places, source, combination(op), b)
        elif isinstance(op, aten.ScatterValue):
            y = _marked(rows, places, source, b)
        elif _writes(op) <= MOST_WRITES:
            y = _one_by_one(rows, places, source, combination(op), b)
        else:
            y = _added(rows, places, source, b)
        return indices.from_rows(Value(y, b), axis, shape).ssa


def combination(op: SchemaOp) -> type[TosaOp] | None:
    """The operator that joins what is written with what stands there; None replaces it."""
    match op:
        case aten.ScatterReduceTwo():
            return REDUCTIONS[op.arg("reduce")]
        case aten.ScatterAddDefault() | aten.IndexAddDefault():
            return t.AddOp
        case _:
            return None


def is_distinct(op: SchemaOp, weights: WeightStore) -> bool:
    """Whether no place is written twice: there is one write, or the indices are known."""
    if _writes(op) == 1:
        return True
    key = weight_key(_index(op))
    if key is None:
        return False
    index = weights.get(key)
    ordered = index.sort(0 if isinstance(op, aten.IndexAddDefault) else _axis(op)).values
    steps = ordered.diff(dim=0 if isinstance(op, aten.IndexAddDefault) else _axis(op))
    return bool((steps != 0).all())


def _index(op: SchemaOp) -> SSAValue:
    index = op.operand("index")
    assert index is not None
    return index


def _axis(op: SchemaOp) -> int:
    return op.arg("dim") % max(len(shape_of(op.operands[0])), 1)


def _writes(op: SchemaOp) -> int:
    """How many writes there are along the axis."""
    shape = shape_of(_index(op))
    return elements(shape) if isinstance(op, aten.IndexAddDefault) else shape[_axis(op)]


def _across(index: SSAValue, axis: int, shape: Sequence[int], b: Builder) -> SSAValue:
    """One list of indices for every place of the other axes."""
    alone = [size if i == axis else 1 for i, size in enumerate(shape)]
    return indices.spread(Value(b.reshape(index, alone), b), shape).ssa


def written(
    x: SSAValue, places: SSAValue, source: SSAValue, how: type[TosaOp] | None, b: Builder
) -> SSAValue:
    """SCATTER into `[rows, K]`; no place stands twice in a row of `places`."""
    held, whole, made = element(x.type), (*shape_of(x), 1), (*shape_of(places), 1)
    values = b.reshape(x, whole)
    given = b.reshape(source, made)
    if how is not None:
        given = b.binary(how, b.op(t.GatherOp, [values, places], made, held), given)
    y = b.op(t.ScatterOp, [values, places, given], whole, held)
    return b.reshape(y, shape_of(x))


def _found(places: SSAValue, length: int, b: Builder) -> SSAValue:
    """`i1[rows, W, length]`: whether the index is the place.

    The row of 0, 1, 2, … that is gathered says that an index of 64 bits is one of these.
    """
    rows, count = shape_of(places)
    numbers = b.constant(torch.arange(length, dtype=torch.int32).reshape(1, -1, 1))
    numbers = indices.spread(Value(numbers, b), (rows, length, 1)).ssa
    index = b.op(t.GatherOp, [numbers, places], (rows, count, 1), i32)
    return b.binary(t.EqualOp, index, b.reshape(narrow(numbers, 0, 0, 1, b), (1, 1, length)), i1)


def _marked(x: SSAValue, places: SSAValue, source: SSAValue, b: Builder) -> SSAValue:
    """A number wherever any index points."""
    rows, length = shape_of(x)
    found = b.reduce(t.ReduceAnyOp, _found(places, length, b), 1)
    value = narrow(source, 1, 0, 1, b)
    return b.select(b.reshape(found, (rows, length)), value, x)


def _one_by_one(
    x: SSAValue, places: SSAValue, source: SSAValue, how: type[TosaOp] | None, b: Builder
) -> SSAValue:
    """The writes in their order."""
    rows, length = shape_of(x)
    found = _found(places, length, b)
    for number in range(shape_of(places)[1]):
        here = b.reshape(narrow(found, 1, number, 1, b), (rows, length))
        given = narrow(source, 1, number, 1, b)
        new = given if how is None else b.binary(how, x, given)
        x = b.select(here, new, x)
    return x


def _added(x: SSAValue, places: SSAValue, source: SSAValue, b: Builder) -> SSAValue:
    """All that is written to a place in one sum, in f32; nothing is multiplied by zero."""
    rows, length = shape_of(x)
    count = shape_of(places)[1]
    given = b.reshape(b.single(source), (rows, count, 1))
    chosen = b.select(_found(places, length, b), given, b.number(0, 3, f32))
    total = b.reshape(b.reduce(t.ReduceSumOp, chosen, 1), (rows, length))
    return narrowed(b.binary(t.AddOp, b.single(x), total), x, b)
