"""Partitioning: group TOSA operators into as few NPU delegates as the data flow allows.

Every op gets a stage. A TOSA operator is at least in the stage of its TOSA operands, and one stage
after its other operands. Any other op is in the latest stage of its operands. The operators of one
stage are one delegate (as in `partition-xnnpack`). Constants and shapes are copied into each
delegate that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.ethosu import DelegateOp, YieldOp
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass

_FIRST, _LAST = (WeightOp, StateOp), (UpdateOp, MutateInputOp, ReturnOp)


@dataclass(frozen=True)
class PartitionEthosu(Pass):
    """Group the TOSA operators of each stage into one `ethosu.delegate`."""

    name: ClassVar[str] = "partition-ethosu"
    accelerator: str = "ethos-u55-128"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of delegates created."""
        return sum(self._method(func) for func in program.methods.values())

    def _method(self, func: FuncOp) -> int:
        block = func.body.block
        shapes = [op for op in block.ops if isinstance(op, TosaOp) and not op.operands]
        stages = _stages(block)
        members: dict[int, list[TosaOp]] = {}
        for op, stage in stages.items():
            if isinstance(op, TosaOp):
                members.setdefault(stage, []).append(op)
        first = [op for op in block.ops if isinstance(op, _FIRST)]
        last = [op for op in block.ops if isinstance(op, _LAST)]
        middle = list(stages)
        delegates = {stage: _delegate(ops, self.accelerator) for stage, ops in members.items()}
        ordered: list[Operation] = []
        for stage in sorted(set(stages.values())):
            if stage in delegates:
                ordered.append(delegates[stage])
            ordered += [op for op in middle if stages[op] == stage and not isinstance(op, TosaOp)]
        for op in [*first, *middle, *last]:
            if op.parent is block:
                op.detach()
        for op in shapes:
            op.detach()
            op.erase()
        block.add_ops([*first, *ordered, *last])
        return len(delegates)


def _is_constant(op: Operation | Block) -> bool:
    """Whether an op is a weight or a TOSA shape constant."""
    return isinstance(op, WeightOp) or (isinstance(op, TosaOp) and not op.operands)


def _stages(block: Block) -> dict[Operation, int]:
    stages: dict[Operation, int] = {}
    for op in block.ops:
        if isinstance(op, _FIRST + _LAST) or _is_constant(op):
            continue
        inside = isinstance(op, TosaOp)
        stage = 1 if inside else 0
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, Operation) and owner in stages:
                crosses = inside and not isinstance(owner, TosaOp)
                stage = max(stage, stages[owner] + (1 if crosses else 0))
        stages[op] = stage
    return stages


def _delegate(ops: list[TosaOp], accelerator: str) -> DelegateOp:
    members: set[Operation] = set(ops)
    inputs: dict[SSAValue, None] = {}
    constants: dict[SSAValue, None] = {}
    for op in ops:
        for operand in op.operands:
            if operand.owner not in members:
                (constants if _is_constant(operand.owner) else inputs).setdefault(operand)
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
    for value in constants:
        assert isinstance(value.owner, Operation)
        copied = value.owner.clone()
        body.add_op(copied)
        copied.results[0].name_hint = value.name_hint
        inside[value] = copied.results[0]
    for op in ops:
        op.detach()
        for index, operand in enumerate(op.operands):
            op.operands[index] = inside.get(operand, operand)
        body.add_op(op)
    delegate = DelegateOp.make(accelerator, list(inputs), [output.type for output in outputs], body)
    for output, result in zip(outputs, delegate.results, strict=True):
        result.name_hint = output.name_hint
        output.replace_uses_with_if(result, lambda use: use.operation not in members)
    body.add_op(YieldOp.create(operands=outputs))
    delegate.location = ops[-1].location
    return delegate
