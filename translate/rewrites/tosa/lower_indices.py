"""Ops that read or write rows by index: GATHER, SCATTER, ARGMAX.

Indexed axes are brought to the one axis that TOSA gathers along: those in front become its batch,
those behind its channels, and several indexed axes one, their indices added up.

Before:
    %y = aten.embedding.default(%w, %i) : (tensor<10x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
After:
    %0 = tosa.const_shape {values = dense<[1, 6]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %1 = tosa.reshape %i, %0 : (tensor<2x3xi64>, !tosa.shape<2>) -> tensor<1x6xi64>
    %2 = tosa.const_shape {values = dense<[1, 10, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %3 = tosa.reshape %w, %2 : (tensor<10x4xf32>, !tosa.shape<3>) -> tensor<1x10x4xf32>
    %4 = tosa.gather %3, %1 : (tensor<1x10x4xf32>, tensor<1x6xi64>) -> tensor<1x6x4xf32>
    %5 = tosa.const_shape {values = dense<[2, 3, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %y = tosa.reshape %4, %5 : (tensor<1x6x4xf32>, !tosa.shape<3>) -> tensor<2x3x4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, i1, i8, i32, i64
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.size import Dim
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.tosa.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_floats, needs_known

INDICES = (i32, i64)


@recipe("from_the_front")
def from_the_front(weight: torch.Tensor, *, size: int) -> torch.Tensor:
    """Indices counted from the end, which are negative, as indices from the front."""
    return torch.where(weight < 0, weight + size, weight)


@dataclass(frozen=True)
class Rows:
    """`count` axes of a tensor from axis `first` on are indexed by `indices`, broadcast together."""

    first: int
    indices: tuple[SSAValue, ...]

    @property
    def behind(self) -> int:
        """The first axis behind the indexed ones."""
        return self.first + len(self.indices)


def indexed_rows(op: SchemaOp) -> Rows | Refusal:
    """Which axes an op indexes, if they stand together and each index is a tensor of integers."""
    match op:
        case aten.EmbeddingDefault():
            found = Rows(0, (op.operands[1],))
        case aten.IndexSelectDefault():
            rank = len(dims(op.operands[0].type))
            index = op.operand("index")
            assert index is not None
            found = Rows(op.arg("dim") % max(rank, 1), (index,))
        case _:
            listed: Sequence[SSAValue | None] = op.arg("indices")
            given = [axis for axis, index in enumerate(listed) if index is not None]
            if not given or given[-1] - given[0] + 1 != len(given):
                return Refusal("the indexed axes do not stand together")
            found = Rows(given[0], tuple(index for index in listed if index is not None))
    for index in found.indices:
        if element(index.type) not in INDICES:
            return Refusal(
                f"the indices are {dtype_name(element(index.type))}: how many they name is not known"
            )
    axes = range(found.first, found.behind)
    return needs_known(op.operands[0], axes, "an indexed axis of size") or found


def _one_index(rows: Rows, held: Sequence[Any], wraps: bool, b: Builder) -> SSAValue:
    """The row number: every index times the rows it steps over, added up."""
    total: SSAValue | None = None
    step = 1
    for axis in reversed(range(len(rows.indices))):
        size = held[rows.first + axis]
        index = rows.indices[axis]
        if wraps:
            index = counted_from_the_front(index, size, b)
        part = index if step == 1 else b.scalar(t.MulOp, index, step)
        total = part if total is None else b.binary(t.AddOp, part, total)
        step *= size
    assert total is not None
    return total


def counted_from_the_front(index: SSAValue, size: int, b: Builder) -> SSAValue:
    """An index that is not negative; a constant one is decided at compile time."""
    key = weight_key(index)
    if key is not None:
        return b.weight(b.rw.weights.derive("from_the_front", [key], size=size))
    negative = b.binary(t.GreaterOp, b.splat(0, index), index, i1)
    wrapped = b.scalar(t.AddOp, index, size)
    return b.select(negative, wrapped, index)


def _for_batch(index: SSAValue, batch: Dim, b: Builder) -> SSAValue:
    """`[batch, W]`: the same indices for each."""
    count = elements(shape_of(index))
    flat = b.reshape(index, (1, count))
    if batch == 1:
        return flat
    shape = (batch, count)
    return b.op(t.TileOp, [flat, b.sizes((batch, 1))], shape, element(index.type))


@dataclass(frozen=True)
class LowerGather(LowerToTosa):
    """`embedding`, `index_select` and `index` to GATHER."""

    name: ClassVar[str] = "lower-gather-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.EmbeddingDefault,
        aten.IndexSelectDefault,
        aten.IndexTensor,
    )
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Integers index axes of known size that stand together."""
        found = indexed_rows(op)
        return found if isinstance(found, Refusal) else None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Batch, rows, channels; then the axes as they were."""
        rows = indexed_rows(op)
        assert not isinstance(rows, Refusal)
        x = op.operands[0]
        held = shape_of(x)
        batch, channels = elements(held[: rows.first]), elements(held[rows.behind :])
        row = _one_index(rows, held, isinstance(op, aten.IndexTensor), b)
        index = _for_batch(row, batch, b)
        values = b.reshape(x, (batch, elements(held[rows.first : rows.behind]), channels))
        shape = (batch, shape_of(index)[1], channels)
        y = b.op(t.GatherOp, [values, index], shape, element(x.type))
        return b.reshape(y, shape_of(op.results[0]))


@dataclass(frozen=True)
class LowerScatter(LowerToTosa):
    """`index_put` without accumulation to SCATTER."""

    name: ClassVar[str] = "lower-scatter-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.IndexPutDefault,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """As for a gather; nothing is added to what stands there."""
        if op.arg("accumulate"):
            return Refusal("accumulate is set; SCATTER replaces, it does not add")
        if _written_mask(op) is not None:
            return None
        found = indexed_rows(op)
        return found if isinstance(found, Refusal) else None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The values as `[batch, rows written, channels]`; a number under a mask by SELECT."""
        x = op.operands[0]
        given = op.operand("values")
        assert given is not None
        held = shape_of(x)
        if (mask := _written_mask(op)) is not None:
            return b.select(b.reshape(mask.value, mask.shape), given, x)
        rows = indexed_rows(op)
        assert not isinstance(rows, Refusal)
        before, behind = held[: rows.first], held[rows.behind :]
        row = _one_index(rows, held, True, b)
        whole = (*before, *shape_of(row), *behind)
        batch, channels = elements(before), elements(behind)
        index = _for_batch(row, batch, b)
        written = b.reshape(_expanded(given, whole, b), (batch, shape_of(index)[1], channels))
        shape = (batch, elements(held[rows.first : rows.behind]), channels)
        y = b.op(t.ScatterOp, [b.reshape(x, shape), index, written], shape, element(x.type))
        return b.reshape(y, held)


@dataclass(frozen=True)
class Mask:
    """Truth values that say where a tensor is written, in a shape that broadcasts against it."""

    value: SSAValue
    shape: tuple[Dim, ...]


def _written_mask(op: SchemaOp) -> Mask | None:
    """The mask under which one number is written, if that is what an `index_put` does."""
    listed: Sequence[SSAValue | None] = op.arg("indices")
    given = [(axis, index) for axis, index in enumerate(listed) if index is not None]
    value = op.operand("values")
    assert value is not None
    if len(given) != 1 or element(given[0][1].type) != i1 or elements(shape_of(value)) != 1:
        return None
    ((first, mask),) = given
    behind = len(shape_of(op.operands[0])) - first - len(shape_of(mask))
    return Mask(mask, (*[1] * first, *shape_of(mask), *[1] * behind))


def _expanded(value: SSAValue, shape: Sequence[Dim], b: Builder) -> SSAValue:
    """The value broadcast to a shape."""
    x = b.of_rank(value, len(shape))
    multiples = [1 if d == n else n for d, n in zip(shape_of(x), shape, strict=True)]
    if all(n == 1 for n in multiples):
        return x
    return b.op(t.TileOp, [x, b.sizes(multiples)], shape, element(x.type))


@dataclass(frozen=True)
class LowerArgmax(LowerToTosa):
    """`argmax` and `argmin` to ARGMAX; over all elements, of the flat tensor."""

    name: ClassVar[str] = "lower-argmax-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ArgmaxDefault, aten.ArgminDefault)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats and signed integers: of equal elements the first; a NaN is the largest."""
        held = element(op.operands[0].type)
        return None if held in (i8, *INDICES) else needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One ARGMAX: of the negative for the smallest, of what equals it among integers."""
        x, axis, least = op.operands[0], op.arg("dim"), isinstance(op, aten.ArgminDefault)
        if axis is None:
            x, axis = b.reshape(x, (elements(shape_of(x)),)), 0
        held = shape_of(x)
        axis %= max(len(held), 1)
        if held and (element(x.type) in INDICES or (least and element(x.type) == i8)):
            x = _marked(x, axis, least, b)
        elif least:
            x = b.negate(x)
        shape = (*held[:axis], *held[axis + 1 :])
        y = b.op(t.ArgMaxOp, [x], shape, i64, axis=IntegerAttr(axis, i32))
        return b.reshape(y, shape_of(op.results[0]))


def _marked(x: SSAValue, axis: int, least: bool, b: Builder) -> SSAValue:
    """A byte for each integer, 1 where it is the largest or the smallest; bytes compare as i32."""
    if element(x.type) == i8:
        x = b.op(t.CastOp, [x], shape_of(x), i32)
    found = b.reduce(t.ReduceMinOp if least else t.ReduceMaxOp, x, axis)
    return b.op(t.CastOp, [b.binary(t.EqualOp, x, found, i1)], shape_of(x), i8)
