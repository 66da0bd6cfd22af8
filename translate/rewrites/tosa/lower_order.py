"""`topk` and `sort`: by repeated ARGMAX, or by counting how many elements come before each.

`topk` of few takes the greatest out, as often as asked: the rest without it is a GATHER, so that
elements of -inf and NaN keep their place. (Of the smallest in long rows, inf and NaN count as one.) Short rows are ordered at once: an element's rank is the
number of those before it, and SCATTER puts each where it belongs. Equal elements stay in order, as
torch's `sort` has them; which of equal elements its `topk` takes first torch leaves open.

Before:
    %y, %i = aten.topk.default(%x, 1) : (tensor<2x3xf32>) -> (tensor<2x1xf32>, tensor<2x1xi64>)
    func.return %y : tensor<2x1xf32>
After:
    %0 = tosa.argmax %x {axis = 1 : i32} : (tensor<2x3xf32>) -> tensor<2xi64>
    %1 = tosa.const_shape {values = dense<[2, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %i = tosa.reshape %0, %1 : (tensor<2xi64>, !tosa.shape<2>) -> tensor<2x1xi64>
    %2 = tosa.const_shape {values = dense<[2, 3, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %3 = tosa.reshape %x, %2 : (tensor<2x3xf32>, !tosa.shape<3>) -> tensor<2x3x1xf32>
    %4 = tosa.gather %3, %i : (tensor<2x3x1xf32>, tensor<2x1xi64>) -> tensor<2x1x1xf32>
    %5 = tosa.const_shape {values = dense<[2, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %4, %5 : (tensor<2x1x1xf32>, !tosa.shape<2>) -> tensor<2x1xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import f32, i1, i32
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.lowerings.tosa.reductions import place_of_greatest
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.rewrites.tosa.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.choices import equal, greater
from stepwell.translate.rewrites.tosa.lower_along import as_rows, from_rows, spread
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_floats

LONGEST_ORDERED = 256
"""Rows up to this length are ordered at once, by as many comparisons as its square."""

MOST_TAKEN = 32
"""The most elements that are taken one by one."""


@dataclass(frozen=True)
class LowerOrder(LowerToTosa):
    """`topk` and `sort` of floats."""

    name: ClassVar[str] = "lower-order-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.TopkDefault,
        aten.SortDefault,
        aten.SortStable,
        aten.ArgsortDefault,
    )
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, an axis that is short or of which little is wanted."""
        shape = shape_of(op.operands[0])
        if not shape:
            return Refusal("the operand is a scalar, which is in order")
        length = shape[_axis(op)]
        wanted = op.arg("k") if isinstance(op, aten.TopkDefault) else length
        if length > LONGEST_ORDERED and wanted > MOST_TAKEN:
            return Refusal(
                f"it puts {wanted} of {length} in order; TOSA has no operator that sorts"
            )
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> tuple[SSAValue | None, ...]:
        """Rows of the axis, their order, and the axes as they were."""
        axis, shape = _axis(op), shape_of(op.results[0])
        x = as_rows(op.operands[0], axis, b)
        length = shape_of(x)[1]
        is_topk = isinstance(op, aten.TopkDefault)
        wanted = op.arg("k") if is_topk else length
        from_the_top = bool(op.arg("largest" if is_topk else "descending"))
        taken = length > LONGEST_ORDERED or wanted == 1
        ordered = _taken if taken else _ranked
        values, places = ordered(x, wanted, from_the_top, b)
        found = (from_rows(values, axis, shape, b), from_rows(places, axis, shape, b))
        return found[-len(op.results) :]


def _axis(op: SchemaOp) -> int:
    return op.arg("dim") % max(len(shape_of(op.operands[0])), 1)


def _taken(x: SSAValue, wanted: int, from_the_top: bool, b: Builder) -> tuple[SSAValue, SSAValue]:
    """The greatest, then the greatest of the rest, and so on: values and places."""
    rows, length = shape_of(x)
    keys = x if from_the_top else b.negate(x)
    places = _numbers(rows, length, b)
    values: list[SSAValue] = []
    found: list[SSAValue] = []
    for taken in range(wanted):
        found_at = place_of_greatest(Value(keys, b), 1, ignoring_nan=not from_the_top).ssa
        at = b.reshape(found_at, (rows, 1))
        values.append(_at(keys, at, b))
        found.append(_at(places, at, b) if taken else at)
        if taken + 1 < wanted:
            left = b.constant(torch.arange(length - taken - 1).reshape(1, -1))
            is_in_front = b.binary(t.GreaterOp, at, left, i1)
            behind = b.select(is_in_front, left, b.scalar(t.AddOp, left, 1))
            keys, places = _at(keys, behind, b), _at(places, behind, b)
    joined = _beside(values, b)
    return (joined if from_the_top else b.negate(joined)), _beside(found, b)


def _ranked(x: SSAValue, wanted: int, from_the_top: bool, b: Builder) -> tuple[SSAValue, SSAValue]:
    """Every element to its rank: how many are greater, or equal and in front."""
    rows, length = shape_of(x)
    keys = b.single(x)
    one, other = b.reshape(keys, (rows, length, 1)), b.reshape(keys, (rows, 1, length))
    first, second = (other, one) if from_the_top else (one, other)
    before = greater(first, second, b)
    # NaN is greater than all numbers, and equal to itself.
    lost_one, lost_other = (b.unary(t.LogicalNotOp, equal(v, v, b)) for v in (one, other))
    greatest, rest = (lost_other, lost_one) if from_the_top else (lost_one, lost_other)
    only = b.binary(t.LogicalAndOp, greatest, b.unary(t.LogicalNotOp, rest), i1)
    both = b.binary(t.LogicalAndOp, lost_one, lost_other, i1)
    same = b.binary(t.LogicalOrOp, equal(one, other, b), both, i1)
    in_front = b.constant(torch.ones(length, length, dtype=torch.bool).tril(-1)[None])
    tied = b.binary(t.LogicalAndOp, same, in_front, i1)
    ahead = b.binary(t.LogicalOrOp, b.binary(t.LogicalOrOp, before, only, i1), tied, i1)
    counted = b.select(ahead, b.number(1, 3, f32), b.number(0, 3, f32))
    total = b.reshape(b.reduce(t.ReduceSumOp, counted, 2), (rows, length))
    rank = b.op(t.CastOp, [total], (rows, length), i32)
    places = _placed(_numbers(rows, length, b), rank, b)
    values = _placed(x, rank, b)
    return narrow(values, 1, 0, wanted, b), narrow(places, 1, 0, wanted, b)


def _numbers(rows: int, length: int, b: Builder) -> SSAValue:
    """0, 1, 2, … in each row."""
    return spread(b.constant(torch.arange(length).reshape(1, -1)), (rows, length), b)


def _at(x: SSAValue, index: SSAValue, b: Builder) -> SSAValue:
    """`[rows, W]` of `[rows, K]`."""
    made = (*shape_of(index), 1)
    values = b.reshape(x, (*shape_of(x), 1))
    return b.reshape(b.op(t.GatherOp, [values, index], made, element(x.type)), made[:2])


def _placed(x: SSAValue, index: SSAValue, b: Builder) -> SSAValue:
    """Every element where its index says; no index stands twice in a row."""
    whole = (*shape_of(x), 1)
    values = b.reshape(x, whole)
    y = b.op(t.ScatterOp, [values, index, values], whole, element(x.type))
    return b.reshape(y, whole[:2])


def _beside(columns: list[SSAValue], b: Builder) -> SSAValue:
    return columns[0] if len(columns) == 1 else b.concat(columns, 1)
