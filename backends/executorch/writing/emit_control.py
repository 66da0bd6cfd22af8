"""Emit control flow as jumps: regions become ranges of instructions.

Values that outlive a region are copied to separate tensors, never assigned by handle, so that the
memory planner sees all reads and writes. Loop counters and carried values are set when the loop is
entered, because a method's values persist between calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.backends.executorch.container import Dynamism
from stepwell.backends.executorch.writing.builder import MethodBuilder
from stepwell.dialects.control import CondOp, MapOp, MapRowsOp, ScanOp, WhileLoopOp
from stepwell.ir.types import dims, is_static


class Emitter(Protocol):
    """The functions of a method's emitter that control flow needs."""

    builder: MethodBuilder
    values: dict[SSAValue, int]

    def fresh(self, type_: Attribute) -> int:
        """Add a value of this type to the method, and return its index."""
        ...

    def run_block(self, block: Block) -> None:
        """Emit the ops of a block in order."""
        ...


def emit_cond(emitter: Emitter, op: CondOp) -> None:
    """Emit an `if`, whose branches write to the same result tensors."""
    builder = emitter.builder
    results = _places(emitter, op.outputs)
    to_else = builder.jump_if_false(emitter.values[op.predicate])
    inputs = [emitter.values[value] for value in op.inputs]
    _assign(emitter, results, _run(emitter, op.if_true, inputs), op.outputs)
    to_end = builder.jump_if_false(builder.scalar(False))
    builder.land(to_else)
    _assign(emitter, results, _run(emitter, op.if_false, inputs), op.outputs)
    builder.land(to_end)


def emit_while(emitter: Emitter, op: WhileLoopOp) -> None:
    """Emit a loop: compute the condition, jump out if it is false, run the body, jump back."""
    builder = emitter.builder
    carried = _places(emitter, op.outputs)
    additional = [emitter.values[value] for value in op.additional]
    _assign(emitter, carried, [emitter.values[value] for value in op.carried], op.outputs)
    start = builder.here
    (condition,) = _run(emitter, op.condition, [*carried, *additional])
    out = builder.jump_if_false(condition)
    given = _run(emitter, op.body, [*carried, *additional])
    _assign(emitter, carried, _apart(emitter, given, carried, op.outputs), op.outputs)
    builder.jump_back(builder.scalar(False), start)
    builder.land(out)


def emit_map(emitter: Emitter, op: MapOp) -> None:
    """Emit a `map` as a scan that carries nothing."""
    _emit_scan(emitter, op, (), op.sequences, op.additional, op.body)


def emit_scan(emitter: Emitter, op: ScanOp) -> None:
    """Emit a `scan`: a counted loop over axis 0 that stacks the results of the body."""
    _emit_scan(emitter, op, op.initial, op.sequences, op.additional, op.body)


def _emit_scan(
    emitter: Emitter,
    op: MapOp | ScanOp,
    initial: Sequence[SSAValue],
    sequences: Sequence[SSAValue],
    additional: Sequence[SSAValue],
    body: Region,
) -> None:
    builder = emitter.builder
    places = _places(emitter, op.outputs)
    carried, stacked = places[: len(initial)], places[len(initial) :]
    _assign(emitter, carried, [emitter.values[v] for v in initial], op.outputs[: len(initial)])
    # The kernel that stores a slice grows its target, which must therefore be dynamic.
    grown = [_growing(emitter, value) for value in op.outputs[len(initial) :]]
    counter, size, done = builder.variable(0), builder.variable(0), builder.variable(False)
    zero, one = builder.scalar(0), builder.scalar(1)
    builder.move(zero, counter)
    first = sequences[0].owner
    whole = first.sequence if isinstance(first, MapRowsOp) else sequences[0]
    builder.call("aten::sym_size.int", [emitter.values[whole], zero, size])
    start = builder.here
    at = dict.fromkeys(sequences, counter)
    for producer in dict.fromkeys(sequence.owner for sequence in sequences):
        if isinstance(producer, MapRowsOp):
            at |= dict.fromkeys(producer.outputs, _next_rows(emitter, producer, counter))
    slices: list[int] = []
    arguments = body.block.args[len(initial) : len(initial) + len(sequences)]
    for argument, sequence in zip(arguments, sequences, strict=True):
        part = emitter.fresh(argument.type)
        whole = emitter.values[sequence]
        builder.call("aten::select_copy.int_out", [whole, zero, at[sequence], part, part])
        slices.append(part)
    outer = [emitter.values[value] for value in additional]
    given = _run(emitter, body, [*carried, *slices, *outer])
    rows = op.outputs[len(initial) :]
    for target, value, result in zip(grown, given[len(initial) :], rows, strict=True):
        if any(not isinstance(size, int) for size in dims(result.type)[1:]):
            _sized_once(emitter, target, value, counter)
        builder.call("executorch_prim::et_copy_index.tensor", [target, value, counter])
    kept = given[: len(initial)]
    _assign(
        emitter,
        carried,
        _apart(emitter, kept, carried, op.outputs[: len(initial)]),
        op.outputs[: len(initial)],
    )
    builder.call("executorch_prim::add.Scalar", [counter, one, counter])
    builder.call("executorch_prim::eq.Scalar", [counter, size, done])
    builder.jump_back(done, start)
    for result, target, source in zip(rows, stacked, grown, strict=True):
        if is_static(result.type):
            _copy(emitter, source, target)
        else:
            emitter.values[result] = source


def _next_rows(emitter: Emitter, op: MapRowsOp, counter: int) -> int:
    """Compute the rows from `counter` on where the last ones are used up; return the place there.

    Values in a loop keep their memory through all of it, so the rows last for the next steps.
    """
    builder = emitter.builder
    [block] = op.body.block.args
    rows = emitter.fresh(block.type)
    most = builder.tensor_of(rows).sizes[0]
    place, end, is_first = builder.variable(0), builder.variable(0), builder.variable(False)
    zero, one, step = builder.scalar(0), builder.scalar(1), builder.scalar(most)
    builder.call("executorch_prim::mod.Scalar", [counter, step, place])
    builder.call("executorch_prim::eq.Scalar", [place, zero, is_first])
    further = builder.jump_if_false(is_first)
    builder.call("executorch_prim::add.Scalar", [counter, step, end])
    whole = emitter.values[op.sequence]
    builder.call("aten::slice_copy.Tensor_out", [whole, zero, counter, end, one, rows, rows])
    for result, value in zip(op.outputs, _run(emitter, op.body, [rows]), strict=True):
        emitter.values[result] = value
    builder.land(further)
    return place


def emit_map_rows(emitter: Emitter, op: MapRowsOp) -> None:
    """Emit nothing here: the loops that read the rows compute them."""


def _sized_once(emitter: Emitter, target: int, row: int, counter: int) -> None:
    """Resize the target to one row in the first step, because the storing kernel resizes axis 0
    only.

    The target still has the sizes of the previous call, which may differ.
    """
    builder = emitter.builder
    zero, is_first = builder.scalar(0), builder.variable(False)
    builder.call("executorch_prim::eq.Scalar", [counter, zero, is_first])
    further = builder.jump_if_false(is_first)
    builder.call("aten::unsqueeze_copy.out", [row, zero, target, target])
    builder.land(further)


def _places(emitter: Emitter, results: Sequence[SSAValue]) -> list[int]:
    """Allocate a tensor of the `.pte` for each result of a control op; return their indices."""
    for result in results:
        emitter.values[result] = emitter.fresh(result.type)
    return [emitter.values[result] for result in results]


def _growing(emitter: Emitter, result: SSAValue) -> int:
    """Return a tensor as large as a result whose first dimension is filled step by step."""
    value = emitter.builder.tensor_of(emitter.values[result])
    return emitter.builder.tensor(value.scalar_type, value.sizes, dynamism=Dynamism.BOUNDED)


def _run(emitter: Emitter, region: Region, arguments: Sequence[int]) -> list[int]:
    """Emit a region on these values; return the values that it yields."""
    for argument, value in zip(region.block.args, arguments, strict=True):
        emitter.values[argument] = value
    emitter.run_block(region.block)
    last = region.block.last_op
    assert last is not None
    return [emitter.values[operand] for operand in last.operands]


def _apart(
    emitter: Emitter, given: Sequence[int], carried: Sequence[int], types: Sequence[SSAValue]
) -> list[int]:
    """Return the values, copied if writing the carried tensors in order would change them before
    use.
    """
    apart: list[int] = []
    for index, (value, result) in enumerate(zip(given, types, strict=True)):
        before = carried[:index]
        if any(emitter.builder.share_storage(value, place) for place in before):
            fresh = emitter.fresh(result.type)
            _assign(emitter, [fresh], [value], [result])
            value = fresh
        apart.append(value)
    return apart


def _assign(
    emitter: Emitter, places: Sequence[int], values: Sequence[int], types: Sequence[SSAValue]
) -> None:
    """Emit a copy or move of each value to its place, in order; one already in place needs none."""
    for place, value, result in zip(places, values, types, strict=True):
        if place == value:
            continue
        if isinstance(result.type, TensorType):
            _copy(emitter, value, place)
        else:
            emitter.builder.move(value, place)


def _copy(emitter: Emitter, source: int, target: int) -> None:
    builder = emitter.builder
    builder.call("aten::clone.out", [source, builder.scalar(None), target, target])


CONTROL: Mapping[type[Operation], Callable[[Any, Any], None]] = {
    CondOp: emit_cond,
    WhileLoopOp: emit_while,
    MapOp: emit_map,
    MapRowsOp: emit_map_rows,
    ScanOp: emit_scan,
}
"""How each control op is written."""
