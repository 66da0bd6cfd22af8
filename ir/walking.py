"""All ops of a program, as fast as Python walks a list, and ops that hang together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import Operation


def walk(root: Operation) -> Iterator[Operation]:
    """`root` and every op below it, each before those that follow it in its block.

    The order of xDSL's `Operation.walk`; a generator only for ops that hold others. The program
    must not change meanwhile.
    """
    yield root
    for region in root.regions:
        for block in region.blocks:
            op = block.first_op
            while op is not None:
                if op.regions:
                    yield from walk(op)
                else:
                    yield op
                op = op.next_op


def connected(
    ops: Iterable[Operation], near: Callable[[Operation], Iterable[object]]
) -> Iterator[list[Operation]]:
    """Sets of ops that hang together by what is near each; what is none of them joins nothing."""
    waiting = dict.fromkeys(ops)
    while waiting:
        first = next(iter(waiting))
        del waiting[first]
        part = [first]
        for op in part:
            for other in near(op):
                if isinstance(other, Operation) and other in waiting:
                    del waiting[other]
                    part.append(other)
        yield part


def makers_and_readers(op: Operation) -> Iterator[object]:
    """What makes an op's operands, and what reads its results."""
    yield from (value.owner for value in op.operands)
    yield from (use.operation for result in op.results for use in result.uses)
