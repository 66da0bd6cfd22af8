"""The contents of a lowered program: delegates, and the ops outside them."""

from collections import Counter
from collections.abc import Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator

from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.dialects.xnnpack.base import XnnpackOp, constant_of, constant_size
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program
from stepwell.ir.traversal import walk

DELEGATES = (DelegateOp, NamedDelegateOp)


def inventory(program: Program) -> tuple[int, Counter[str]]:
    """Return the number of delegates, and the counts by op name of the ops outside them, over all
    methods.
    """
    ops = list(outside_and_delegates(program))
    delegates = sum(isinstance(op, DELEGATES) for op in ops)
    return delegates, Counter(op_name(op) for op in ops if not isinstance(op, DELEGATES))


def cuts(program: Program) -> int:
    """Return the number of delegates that were split from the preceding one to save memory."""
    return sum(
        isinstance(op, DelegateOp) and isinstance(op.prev_op, DelegateOp)
        for op in outside_and_delegates(program)
    )


def packed_weights(program: Program) -> tuple[int, int]:
    """Return the bytes of the weights that XNNPACK packs, and those of the distinct ones.

    A node packs the weights that it reads, so a weight counts once for each node that reads it.
    """
    packed, distinct = 0, dict[str, int]()
    for op in walk(program.module):
        if not isinstance(op, XnnpackOp):
            continue
        for index, value in enumerate(op.operands):
            if op.packs(index) and (weight := constant_of(value)) is not None:
                distinct[weight.key.data] = constant_size(weight)
                packed += distinct[weight.key.data]
    return packed, sum(distinct.values())


def outside_and_delegates(program: Program) -> Iterator[Operation]:
    """Return all delegates, and all ops outside them that a kernel runs, over all methods."""

    def look(block: Block) -> Iterator[Operation]:
        for op in block.ops:
            if isinstance(op, DELEGATES):
                yield op
                continue
            for region in op.regions:
                for inner in region.blocks:
                    yield from look(inner)
            if op.has_trait(IsTerminator):
                continue
            if not isinstance(op, WeightOp | StateOp | UpdateOp | MutateInputOp | FuncOp):
                yield op

    for func in program.methods.values():
        for block in func.body.blocks:
            yield from look(block)
