"""`gather` and `take_along_dim`: elements of one axis, chosen anew for every place of the others.

GATHER has one list of rows for all channels, so the other axes become its batch. An index that was
spread over the axes behind, as networks that pick tokens write it, keeps them as channels.

Before:
    %y = aten.gather.default(%x, 1, %i) : (tensor<2x5xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
After:
    %0 = tosa.const_shape {values = dense<[2, 5, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %1 = tosa.reshape %x, %0 : (tensor<2x5xf32>, !tosa.shape<3>) -> tensor<2x5x1xf32>
    %2 = tosa.gather %1, %i : (tensor<2x5x1xf32>, tensor<2x3xi64>) -> tensor<2x3x1xf32>
    %3 = tosa.const_shape {values = dense<[2, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %2, %3 : (tensor<2x3x1xf32>, !tosa.shape<2>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, elements, narrow, shape_of
from stepwell.translate.rewrites.tosa.lower_indices import counted_from_the_front
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa


@dataclass(frozen=True)
class LowerAlong(LowerToTosa):
    """`gather` and `take_along_dim` to GATHER."""

    name: ClassVar[str] = "lower-along-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.GatherDefault,
        aten.TakeAlongDimDefault,
    )
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A tensor with axes."""
        return (
            None
            if shape_of(op.operands[0])
            else Refusal("the operand is a scalar, which has no axis")
        )

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The other axes to the front, rows, and back."""
        x, index = op.operands[:2]
        shape = shape_of(op.results[0])
        if op.arg("dim") is None:
            x, index = (b.reshape(v, (elements(shape_of(v)),)) for v in (x, index))
        axis = (op.arg("dim") or 0) % len(shape_of(x))
        if isinstance(op, aten.TakeAlongDimDefault):
            size = shape_of(x)[axis]
            wanted = [
                max(one, other) if i != axis else other
                for i, (one, other) in enumerate(zip(shape_of(x), shape_of(index), strict=True))
            ]
            index = spread(counted_from_the_front(index, size, b), wanted, b)
            x = spread(x, [size if i == axis else n for i, n in enumerate(wanted)], b)
        return b.reshape(along(x, axis, index, b), shape)


def spread(x: SSAValue, shape: Sequence[int], b: Builder) -> SSAValue:
    """The value with its axes of size 1 repeated."""
    multiples = [n // held for n, held in zip(shape, shape_of(x), strict=True)]
    if set(multiples) == {1}:
        return x
    return b.op(t.TileOp, [x, b.sizes(multiples)], shape, element(x.type))


def along(x: SSAValue, axis: int, index: SSAValue, b: Builder) -> SSAValue:
    """`x` at `index` on one axis, both of one rank; other axes of x may be longer."""
    shape = shape_of(index)
    for i, size in enumerate(shape):
        if i != axis:
            x = narrow(x, i, 0, size, b)
    rows = _one_list(index, axis)
    if rows is not None:
        batch, channels = elements(shape[:axis]), elements(shape[axis + 1 :])
        values = b.reshape(x, (batch, shape_of(x)[axis], channels))
        made = (batch, shape[axis], channels)
        index = b.reshape(rows, made[:2])
        return b.reshape(b.op(t.GatherOp, [values, index], made, element(x.type)), shape)
    values, rows = as_rows(x, axis, b), as_rows(index, axis, b)
    values = b.reshape(values, (*shape_of(values), 1))
    made = (*shape_of(rows), 1)
    return from_rows(b.op(t.GatherOp, [values, rows], made, element(x.type)), axis, shape, b)


def as_rows(x: SSAValue, axis: int, b: Builder) -> SSAValue:
    """`[elements of the other axes, elements of this one]`."""
    shape = shape_of(x)
    last = b.transpose(x, [*range(axis), *range(axis + 1, len(shape)), axis])
    return b.reshape(last, (elements(shape) // shape[axis], shape[axis]))


def from_rows(rows: SSAValue, axis: int, shape: Sequence[int], b: Builder) -> SSAValue:
    """The axes as they were before `as_rows`."""
    behind = [*shape[:axis], *shape[axis + 1 :], shape[axis]]
    last = len(shape) - 1
    order = [*range(axis), last, *range(axis, last)]
    return b.transpose(b.reshape(rows, behind), order)


def _one_list(index: SSAValue, axis: int) -> SSAValue | None:
    """The index before it was spread over the axes behind its own, if that is all that was done."""
    maker = index.owner
    if not isinstance(maker, t.TileOp | aten.ExpandDefault):
        return index if elements(shape_of(index)[axis + 1 :]) == 1 else None
    held, made = shape_of(maker.operands[0]), shape_of(index)
    if held == (*made[: axis + 1], *[1] * (len(made) - axis - 1)):
        return maker.operands[0]
    return None
