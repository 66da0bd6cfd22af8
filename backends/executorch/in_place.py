"""Which writes to a state happen where it lies: a cache is written where it changed, not copied."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import StateOp, UpdateOp
from stepwell.ir.dtypes import i1
from stepwell.ir.types import dims, element


def _has_a_slot_each(op: Operation) -> bool:
    """Whether the values of an `index_put` are, up to dimensions of size 1, what it overwrites."""
    assert isinstance(op, SchemaOp)
    wanted = slots_of(op)
    given = dims(op.arg("values").type)
    return wanted is not None and [d for d in given if d != 1] == [d for d in wanted if d != 1]


def slots_of(op: SchemaOp) -> tuple[int, ...] | None:
    """The shape that an `index_put` with one static 1-D index overwrites, or None.

    Other forms are not written in place: the kernel checks less of them.
    """
    indices = [(axis, i) for axis, i in enumerate(op.arg("indices")) if i is not None]
    if len(indices) != 1 or element(indices[0][1].type) == i1:
        return None
    (axis, index), shape = indices[0], dims(op.results[0].type)
    slots = [*shape[:axis], *dims(index.type), *shape[axis + 1 :]]
    if len(dims(index.type)) != 1 or not all(isinstance(size, int) for size in slots):
        return None
    return cast("tuple[int, ...]", tuple(slots))


def in_place_updates(func: FuncOp) -> frozenset[Operation]:
    """The `index_put`s of a state that may write into it where it lies.

    Such an op takes the state as it was at entry and gives what the state becomes; nothing that
    runs later reads the old value. A cache is then written where it changed, and not copied.
    """
    position = {op: index for index, op in enumerate(func.body.block.ops)}
    states: dict[str, list[StateOp]] = {}
    updated: dict[str, int] = {}
    for op in position:
        if isinstance(op, StateOp):
            states.setdefault(op.key.data, []).append(op)
        elif isinstance(op, UpdateOp):
            updated[op.key.data] = updated.get(op.key.data, 0) + 1
    found: set[Operation] = set()
    for op in position:
        if op.name != "aten.index_put.default":
            continue
        state = op.operands[0].owner
        if not isinstance(state, StateOp) or updated.get(state.key.data) != 1:
            continue
        key = state.key.data
        becomes = any(
            isinstance(use.operation, UpdateOp) and use.operation.key.data == key
            for use in op.results[0].uses
        )
        reads = [use for s in states[key] for use in s.result.uses if use.operation is not op]
        own = [use for s in states[key] for use in s.result.uses if use.operation is op]
        is_last = all(position.get(use.operation, -1) >= 0 and
                      position[use.operation] < position[op] for use in reads)  # fmt: skip
        if becomes and is_last and len(own) == 1 and _has_a_slot_each(op):
            found.add(op)
    return frozenset(found)
