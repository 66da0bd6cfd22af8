"""Bufferization: writes that happen in place, so that a cache is not copied.

In the IR, an operator that writes takes the old value and returns the new value. The write may
happen in the operand's memory if no later op reads the old value. For a state, the result must also
become the state's value at exit, by this write or by following writes.
"""

from collections.abc import Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.control import YieldOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.types import Dim, dims, element, is_static
from stepwell.translate.range_analysis import interval


def _has_a_slot_each(op: SchemaOp) -> bool:
    """Whether the values of an `index_put` have the shape that they overwrite, up to unit axes.

    The kernel that writes in place does not broadcast the values.
    """
    if op.arg("accumulate"):
        return False
    wanted = slots_of(op)
    arg_dims = dims(op.arg("values").type)
    if wanted is None:
        return False
    if all(isinstance(size, int) for size in (*wanted, *arg_dims)):
        return [d for d in arg_dims if d != 1] == [d for d in wanted if d != 1]
    return arg_dims == wanted


def slots_of(op: SchemaOp) -> tuple[Dim, ...] | None:
    """Return the shape that an `index_put` with one 1-D index overwrites, or None.

    Other forms are not written in place: the kernel checks less of them.
    """
    indices = [(axis, i) for axis, i in enumerate(op.arg("indices")) if i is not None]
    if len(indices) != 1 or element(indices[0][1].type) == i1:
        return None
    (axis, index), shape = indices[0], dims(op.results[0].type)
    if len(dims(index.type)) != 1 or not is_static(op.results[0].type):
        return None
    return (*shape[:axis], *dims(index.type), *shape[axis + 1 :])


def _writes(op: Operation) -> Iterator[tuple[int, SSAValue]]:
    """Yield (index of the operand, result) of each value that an op could write in place."""
    if not isinstance(op, SchemaOp):
        return
    if op.name == "aten.index_put.default" and _has_a_slot_each(op):
        yield 0, op.results[0]
    written = op.SCHEMA.written
    for number, argument in enumerate(written):
        value = op.operand(argument.name)
        assert value is not None
        yield op.operands.index(value), op.results[len(op.results) - len(written) + number]


Written = frozenset[tuple[Operation, int]]
"""Ops with the index of an operand that they write in place."""


def in_place_writes(func: FuncOp, program: Program) -> Written:
    """Return the writes of a method that need no copy of their target.

    The kernel that writes by index in place does not accept negative indices. A temporary is
    written in place if no index is negative, a state even if one may be.
    """
    block = func.body.block
    position = {op: index for index, op in enumerate(block.ops)}
    states: dict[str, list[SSAValue]] = {}
    updated: dict[str, list[UpdateOp]] = {}
    for op in position:
        if isinstance(op, StateOp):
            states.setdefault(op.key.data, []).append(op.result)
        elif isinstance(op, UpdateOp):
            updated.setdefault(op.key.data, []).append(op)
    writes: set[tuple[Operation, int]] = set()
    for key, values in states.items():
        if len(updated.get(key, ())) == 1:
            writes.update(_chain(values, updated[key][0], position))
    for op in position:
        for index, _ in _writes(op):
            value = op.operands[index]
            if not _is_a_temporary(value) or not _is_last(op, [value], position):
                continue
            if op.name != "aten.index_put.default" or _is_from_the_start(op, program):
                writes.add((op, index))
    return frozenset(writes)


def _is_from_the_start(op: Operation, program: Program) -> bool:
    """Whether no index of an `index_put` is negative."""
    assert isinstance(op, SchemaOp)
    indices = [index for index in op.arg("indices") if index is not None]
    return all(interval(index, program).low >= 0 for index in indices)


def _chain(
    values: list[SSAValue], update: UpdateOp, position: dict[Operation, int]
) -> list[tuple[Operation, int]]:
    """Return the writes that lead from a state's value at entry to its value at exit; empty if none
    do.
    """
    chain: list[tuple[Operation, int]] = []
    while update.value not in values:
        writer = _writer_of(values, position)
        if writer is None:
            return []
        op, index, after = writer
        chain.append((op, index))
        values = [after]
    return chain


def _writer_of(
    values: list[SSAValue], position: dict[Operation, int]
) -> tuple[Operation, int, SSAValue] | None:
    """Return the op that may overwrite one of several aliases of a value: the last that reads
    any.
    """
    for value in values:
        for use in value.uses:
            op = use.operation
            if op in position and _is_last(op, values, position):
                for index, after in _writes(op):
                    if index == use.index:
                        return op, index, after
    return None


def _is_last(op: Operation, values: list[SSAValue], position: dict[Operation, int]) -> bool:
    """Whether an op uses a value once, and all other users precede it."""
    uses = [use.operation for value in values for use in value.uses]
    if uses.count(op) != 1:
        return False
    return all(other is op or -1 < position.get(other, -1) < position[op] for other in uses)


def _is_a_temporary(value: SSAValue) -> bool:
    """Whether a value owns its memory: an op created it, and no other tensor is a view of it."""
    owner = value.owner
    if not isinstance(owner, Operation) or isinstance(owner, WeightOp | StateOp):
        return False
    if isinstance(owner, SchemaOp) and (is_reshape(owner) or any(True for _ in _writes(owner))):
        return False
    readers = [use.operation for use in value.uses]
    return not any(
        isinstance(reader, YieldOp | UpdateOp | MutateInputOp)
        or (isinstance(reader, SchemaOp) and is_reshape(reader))
        for reader in readers
    )
