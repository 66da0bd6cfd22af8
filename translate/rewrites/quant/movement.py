"""Float ops that only move values, so that they commute with quantization.

For these ops, q(op(x)) = op(q(x)) and op(dq(x)) = dq(op(x)), bit for bit.
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
    """Whether an op only moves values."""
    return isinstance(op, SchemaOp) and (is_movement(op) or op.name == "aten.index_select.default")


def moved(op: SchemaOp) -> Iterator[tuple[int, SSAValue]]:
    """Yield (index, operand) of the operands whose values are moved."""
    count = 1 if op.name == "aten.index_select.default" else len(op.operands)
    for index, value in enumerate(op.operands[:count]):
        if isinstance(value.type, TensorType):
            yield index, value


def permutation(op: SchemaOp) -> tuple[int, ...] | None:
    """Return the permutation of a permute, transpose or t; None for other ops."""
    axes = axis_map(op) if is_of(op, "permutation") else None
    return None if axes is None else axes.order_after(0, tuple(range(len(axes.shape))))
