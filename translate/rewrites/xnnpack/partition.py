"""Gather xnnpack ops into delegates: as few as the data flow allows.

Every op gets a stage. An xnnpack op stands in the latest stage of the xnnpack ops it reads, and
one later than any op outside it reads; an op outside stands in the latest stage it reads. All
xnnpack ops of one stage can be one delegate: an edge never goes back a stage, and goes forward
through an op outside only to a later one, so no cycle can form. The number of delegates is the
longest chain of alternations, which no partition can undercut.

Packed weights move into the delegate. A constant that XNNPACK does not copy stays outside and is
handed in as an input (facts: runtimes free what XNNPACK only points to).

Before:
    func.func @forward(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
      %a = xnnpack.abs(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %b = aten.erf.default(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %c = xnnpack.negate(%b) : (tensor<1x4xf32>) -> tensor<1x4xf32>
      func.return %c : tensor<1x4xf32>
    }
After: two delegates with `aten.erf.default` between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.xnnpack import DelegateOp, XnnpackOp, YieldOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, Pass

_ALWAYS_FIRST = (WeightOp, StateOp)
_ALWAYS_LAST = (UpdateOp, MutateInputOp, ReturnOp)


def _stands_last(op: Operation) -> bool:
    return isinstance(op, _ALWAYS_LAST) or op.has_trait(IsTerminator)


@dataclass(frozen=True)
class PartitionXnnpack(Pass):
    """xnnpack ops of one stage become one `xnnpack.delegate`; the module is at its level then."""

    name: ClassVar[str] = "partition-xnnpack"

    def apply(self, program: Program, history: History) -> int:
        """Returns the number of delegates made."""
        made = sum(partition(func.body.block) for func in program.methods.values())
        set_level(program.module, "xnnpack")
        return made


def partition(block: Block) -> int:
    """Partition a block and the regions in it; returns the number of delegates."""
    inner = sum(partition(b) for op in block.ops for region in op.regions for b in region.blocks)
    stages = _stages(block)
    members: dict[int, list[Operation]] = {}
    for op, stage in stages.items():
        if isinstance(op, XnnpackOp):
            members.setdefault(stage, []).append(op)
    first = [op for op in block.ops if isinstance(op, _ALWAYS_FIRST)]
    last = [op for op in block.ops if _stands_last(op)]
    middle = [op for op in block.ops if op in stages]
    delegates = {stage: _delegate(ops) for stage, ops in members.items()}
    ordered: list[Operation] = []
    for stage in sorted(set(stages.values())):
        if stage in delegates:
            ordered.append(delegates[stage])
        ordered += [op for op in middle if stages[op] == stage and not isinstance(op, XnnpackOp)]
    for op in [*first, *middle, *last]:
        if op.parent is block:
            op.detach()
    block.add_ops([*first, *ordered, *last])
    return inner + len(delegates)


def _stages(block: Block) -> dict[Operation, int]:
    stages: dict[Operation, int] = {}
    for op in block.ops:
        if isinstance(op, _ALWAYS_FIRST) or _stands_last(op):
            continue
        inside = isinstance(op, XnnpackOp)
        stage = 1 if inside else 0
        for operand in _reads(op):
            owner = operand.owner
            if owner in stages:
                assert isinstance(owner, Operation)
                step = 1 if inside and not isinstance(owner, XnnpackOp) else 0
                stage = max(stage, stages[owner] + step)
        stages[op] = stage
    return stages


def _reads(op: Operation) -> Sequence[SSAValue]:
    """Operands of an op and of everything in its regions."""
    if not op.regions:
        return op.operands
    return [operand for inner in op.walk() for operand in inner.operands]


def _delegate(ops: list[Operation]) -> DelegateOp:
    """A delegate op around `ops`, which move into it; uses outside read its results."""
    members = set(ops)
    inputs: dict[SSAValue, int] = {}
    packed: dict[WeightOp, None] = {}
    for op in ops:
        for index, operand in enumerate(op.operands):
            owner = operand.owner
            if owner in members:
                continue
            if isinstance(owner, WeightOp) and isinstance(op, XnnpackOp) and op.packs(index):
                packed.setdefault(owner)
            else:
                inputs.setdefault(operand, len(inputs))
    outputs = [
        result
        for op in ops
        for result in op.results
        if any(use.operation not in members for use in result.uses)
    ]
    body = Block(arg_types=[value.type for value in inputs])
    inside: dict[SSAValue, SSAValue] = {}
    for value, index in inputs.items():
        inside[value] = body.args[index]
        body.args[index].name_hint = value.name_hint
    weights: dict[SSAValue, SSAValue] = {}
    for weight in packed:
        copied = weight.clone()
        body.add_op(copied)
        copied.result.name_hint = weight.result.name_hint
        weights[weight.result] = copied.result
    for op in ops:
        op.detach()
        for index, operand in enumerate(op.operands):
            if operand.owner in members:
                continue
            is_packed = isinstance(op, XnnpackOp) and op.packs(index) and operand in weights
            op.operands[index] = weights[operand] if is_packed else inside[operand]
        body.add_op(op)
    delegate = DelegateOp.create(
        operands=list(inputs),
        result_types=[output.type for output in outputs],
        regions=[Region(body)],
    )
    for output, result in zip(outputs, delegate.results, strict=True):
        result.name_hint = output.name_hint
        output.replace_uses_with_if(result, lambda use: use.operation not in members)
    body.add_op(YieldOp.create(operands=outputs))
    if ops:
        delegate.location = ops[-1].location
    return delegate
