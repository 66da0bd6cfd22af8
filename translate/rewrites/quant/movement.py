"""Float ops that only move values: quantizing before or after them is the same.

For these, q(op(x)) = op(q(x)) and op(dq(x)) = dq(op(x)), bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.declared.families import is_movement, is_of, ops_of

MOVEMENT: tuple[type[SchemaOp], ...] = tuple(
    op_class(name) for name in (*ops_of("movement", "aten"), "aten.index_select.default")
)
"""Data movement ops; dropout is one in a program that is not training."""


def only_moves(op: Operation | Block) -> TypeGuard[SchemaOp]:
    """Whether an op moves values and computes nothing."""
    return isinstance(op, SchemaOp) and (is_movement(op) or op.name == "aten.index_select.default")


def moved(op: SchemaOp) -> Iterator[tuple[int, SSAValue]]:
    """Yield the operands whose values are moved (not an `index_select`'s indices), by index."""
    count = 1 if op.name == "aten.index_select.default" else len(op.operands)
    for index, value in enumerate(op.operands[:count]):
        if isinstance(value.type, TensorType):
            yield index, value


def permutation(op: SchemaOp) -> tuple[int, ...] | None:
    """Return the permutation of a permute, transpose or t, or None for other movement ops."""
    axes = axis_map(op) if is_of(op, "permutation") else None
    return None if axes is None else axes.order_after(0, tuple(range(len(axes.shape))))
