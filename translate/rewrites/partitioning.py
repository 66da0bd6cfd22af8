"""Partitioning for engines whose delegates copy their constants: one delegate per stage.

Every op gets a stage. An op of the engine is at least in the stage of the engine's ops that it
reads, and one stage after its other operands. Any other op is in the latest stage of its operands.
All of the engine's ops of one stage form one delegate: an edge never goes back a stage, so no cycle
can form, and the number of delegates is the longest chain of alternations. A stage is merged into
the next one if no other op of its own stage reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp

FIRST, LAST = (WeightOp, StateOp), (UpdateOp, MutateInputOp, ReturnOp)


@dataclass(frozen=True)
class Engine:
    """The ops of an engine, and how its delegates are made.

    Attributes:
        is_inside: whether an op runs on the engine.
        is_constant: whether an op is a constant, which each delegate that reads it copies.
        make: creates a delegate from (operands, result types, block); the block ends in `end`.
        end: the class of the terminator.
    """

    is_inside: Callable[[Operation], bool]
    is_constant: Callable[[Operation], bool]
    make: Callable[[Sequence[SSAValue], Sequence[Attribute], Block], Operation]
    end: type[Operation]


def partition(block: Block, engine: Engine) -> int:
    """Form the delegates of a block and of the regions in it, and return their number."""
    nested = [op for op in block.ops if op.regions and not isinstance(op, NamedDelegateOp)]
    made = sum(
        partition(b, engine) for op in nested for region in op.regions for b in region.blocks
    )
    constants = [op for op in block.ops if engine.is_constant(op)]
    stages = stages_of(block, engine)
    members: dict[int, list[Operation]] = {}
    for op, stage in stages.items():
        if engine.is_inside(op):
            members.setdefault(stage, []).append(op)
    for stage in sorted(members)[:-1]:
        if not any(_is_read_outside(op, stages, engine) for op in members[stage]):
            moved = members.pop(stage)
            stages.update(dict.fromkeys(moved, stage + 1))
            members[stage + 1] = [*moved, *members.get(stage + 1, ())]
    first = [op for op in block.ops if isinstance(op, FIRST)]
    last = [op for op in block.ops if _is_last(op)]
    middle = list(stages)
    delegates = {stage: _delegate(members[stage], engine) for stage in sorted(members)}
    ordered: list[Operation] = []
    for stage in sorted(set(stages.values())):
        ordered += [delegates[stage]] if stage in delegates else []
        ordered += [op for op in middle if stages[op] == stage and not engine.is_inside(op)]
    for op in [*first, *middle, *last]:
        if op.parent is block:
            op.detach()
    for op in constants:
        if op.parent is block:
            op.detach()
            op.erase()
    block.add_ops([*first, *ordered, *last])
    return made + len(delegates)


def _is_last(op: Operation) -> bool:
    return isinstance(op, LAST) or op.has_trait(IsTerminator)


def stages_of(block: Block, engine: Engine) -> dict[Operation, int]:
    """Return the stage of each op of a block, without constants and what comes first or last."""
    stages: dict[Operation, int] = {}
    for op in block.ops:
        if isinstance(op, FIRST) or _is_last(op) or engine.is_constant(op):
            continue
        inside = engine.is_inside(op)
        stage = 1 if inside else 0
        for operand in _reads(op):
            owner = operand.owner
            if isinstance(owner, Operation) and owner in stages:
                stage = max(stage, stages[owner] + (inside and not engine.is_inside(owner)))
        stages[op] = stage
    return stages


def _reads(op: Operation) -> Iterable[SSAValue]:
    """Return the operands of an op and of all ops in its regions."""
    return [operand for inner in op.walk() for operand in inner.operands]


def _is_read_outside(op: Operation, stages: Mapping[Operation, int], engine: Engine) -> bool:
    """Whether an op of its own stage that runs elsewhere reads a result."""
    readers = [use.operation for result in op.results for use in result.uses]
    return any(stages.get(r) == stages[op] and not engine.is_inside(r) for r in readers)


def _delegate(ops: Sequence[Operation], engine: Engine) -> Operation:
    """Move ops into a new delegate; outside uses read its results."""
    members = set(ops)
    inputs: dict[SSAValue, None] = {}
    constants: dict[SSAValue, Operation] = {}
    for op in ops:
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, Operation) and engine.is_constant(owner):
                constants[operand] = owner
            elif owner not in members:
                inputs.setdefault(operand)
    outputs = [
        result
        for op in ops
        for result in op.results
        if any(use.operation not in members for use in result.uses)
    ]
    body = Block(arg_types=[value.type for value in inputs])
    inside: dict[SSAValue, SSAValue] = dict(zip(inputs, body.args, strict=True))
    for value, argument in inside.items():
        argument.name_hint = value.name_hint
    for value, owner in constants.items():
        copied = owner.clone()
        body.add_op(copied)
        copied.results[0].name_hint = value.name_hint
        inside[value] = copied.results[0]
    for op in ops:
        op.detach()
        for index, operand in enumerate(op.operands):
            op.operands[index] = inside.get(operand, operand)
        body.add_op(op)
    delegate = engine.make(list(inputs), [output.type for output in outputs], body)
    for output, result in zip(outputs, delegate.results, strict=True):
        result.name_hint = output.name_hint
        output.replace_uses_with_if(result, lambda use: use.operation not in members)
    body.add_op(engine.end.create(operands=outputs))
    delegate.location = ops[-1].location
    return delegate
