"""Which float ops only move values: quantising before or after them is the same.

For these, q(op(x)) = op(q(x)) and op(dq(x)) = dq(op(x)), bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.types import dims

_NAMES = (
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten.numpy_T.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze.default",
    "aten.expand.default",
    "aten.slice.Tensor",
    "aten.select.int",
    "aten.narrow.default",
    "aten.cat.default",
    "aten.stack.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.repeat.default",
    "aten.flip.default",
    "aten.roll.default",
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "aten.unbind.int",
    "aten.index_select.default",
    "aten.view_copy.default",
    "aten.permute_copy.default",
    "aten.transpose_copy.int",
    "aten.squeeze_copy.dims",
    "aten.unsqueeze_copy.default",
    "aten.expand_copy.default",
    "aten.slice_copy.Tensor",
    "aten.select_copy.int",
    "aten.split_with_sizes_copy.default",
    "aten.t_copy.default",
    "aten.dropout.default",
)

MOVEMENT: tuple[type[SchemaOp], ...] = tuple(op_class(name) for name in _NAMES)
"""Movement ops; dropout is one in a program that is not training."""


def is_movement(op: Operation | Block) -> TypeGuard[SchemaOp]:
    """Whether an op moves values and computes nothing."""
    if not isinstance(op, MOVEMENT):
        return False
    return op.name != "aten.dropout.default" or op.arg("train") is False


def moved(op: SchemaOp) -> Iterator[tuple[int, SSAValue]]:
    """The operands whose values are moved (an `index_select`'s indices are not), with their place."""
    count = 1 if op.name == "aten.index_select.default" else len(op.operands)
    for index, value in enumerate(op.operands[:count]):
        if isinstance(value.type, TensorType):
            yield index, value


_PERMUTE = ("aten.permute.default", "aten.permute_copy.default")
_TRANSPOSE = ("aten.transpose.int", "aten.transpose_copy.int")
_MATRIX = ("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default")


def permutation(op: SchemaOp) -> tuple[int, ...] | None:
    """The permutation that a permute, transpose or t does, or None for other movement ops."""
    rank = len(dims(op.operands[0].type))
    if op.name in _PERMUTE:
        return tuple(axis % rank for axis in cast(Sequence[int], op.arg("dims")))
    if op.name in _MATRIX:
        return tuple(reversed(range(rank)))
    if op.name in _TRANSPOSE:
        order = list(range(rank))
        first, second = (cast(int, op.arg(name)) % rank for name in ("dim0", "dim1"))
        order[first], order[second] = order[second], order[first]
        return tuple(order)
    return None
