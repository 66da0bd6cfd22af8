"""All ops of a program, as fast as Python walks a list, and ops that hang together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import Operation

from stepwell.ir.compat.xdsl.xdsl_private import ops_below


def walk(root: Operation) -> list[Operation]:
    """`root` and every op below it, each before those that follow it in its block.

    The order of xDSL's `Operation.walk`, as they stand now: the program may change meanwhile.
    """
    return ops_below(root, [root])


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
