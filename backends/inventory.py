"""The contents of a lowered program: delegates, and the ops outside them."""

from collections.abc import Iterable, Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator

from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.dialects.xnnpack.base import XnnpackOp, constant_of, constant_size
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.program import Program
from stepwell.ir.traversal import walk
from stepwell.ir.work import FREE

CLOSED = frozenset({"ethosu.binary", "executorch.opaque_delegate"})
"""Delegates whose ops, and so whose work, are not known."""


def is_delegate(op: Operation) -> bool:
    """Whether a backend runs an op, or what is in it, as a whole."""
    return isinstance(op, DelegateOp | NamedDelegateOp) or op.name in CLOSED


def delegates(program: Program) -> int:
    """Return the number of delegates, over all methods."""
    return sum(is_delegate(op) for op in outside_and_delegates(program))


def places(program: Program, outside: Iterable[Operation]) -> Iterator[tuple[str, Operation, str]]:
    """Yield the method of each op that computes, the op, and where it runs, in order.

    The place is `delegate 0` (numbered over all methods), `kernel` or `backend`. A delegate that
    cannot be looked into is one op.

    Args:
        program: a program at the level of a target.
        outside: the ops that kernels of the runtime run (`Target.outside`).
    """
    left, number = set(outside), 0
    for method, func in program.methods.items():
        for op in func.body.block.ops:
            is_whole = is_delegate(op)
            is_opened = is_whole and op.name not in CLOSED
            place = f"delegate {number}" if is_whole else "backend"
            number += is_whole
            for inner in op.walk():
                if computes(inner) and not (is_opened and inner is op):
                    yield method, inner, "kernel" if inner in left else place


def computes(op: Operation) -> bool:
    """Whether something of an op remains at run time: it is no weight, type or terminator."""
    is_bookkeeping = isinstance(op, WeightOp | StateOp | UpdateOp | MutateInputOp)
    return not (is_bookkeeping or op.name in FREE or op.has_trait(IsTerminator))


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
            if is_delegate(op):
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
