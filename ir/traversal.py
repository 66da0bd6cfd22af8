"""Fast traversal of all ops of a program, and connected components of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.ir.compat.xdsl.xdsl_private import ops_below


def walk(root: Operation) -> list[Operation]:
    """List `root` and every op below it, each before those that follow it in its block.

    The order is that of xDSL's `Operation.walk`. The list is a snapshot, so that the program may
    change during iteration.
    """
    return ops_below(root, [root])


def connected(
    ops: Iterable[Operation], near: Callable[[Operation], Iterable[object]]
) -> Iterator[list[Operation]]:
    """Yield the connected components of `ops`; the neighbors of an op are the ops in `near(op)`."""
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


def reached(
    first: SSAValue, further: Callable[[SSAValue], Iterable[SSAValue]]
) -> Iterator[SSAValue]:
    """Yield a value and all that are reached from it, each once; `further(value)` is asked after
    the value was yielded.
    """
    waiting, seen = [first], set[SSAValue]()
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            yield value
            waiting += further(value)


def makers_and_readers(op: Operation) -> Iterator[object]:
    """Yield the producers of an op's operands and the users of its results."""
    yield from (value.owner for value in op.operands)
    yield from (use.operation for result in op.results for use in result.uses)


def producers(values: Iterable[SSAValue]) -> dict[Operation, None]:
    """List the ops from which values are computed: their owners, and those of all operands."""
    found: dict[Operation, None] = {}
    waiting = [value.owner for value in values]
    while waiting:
        owner = waiting.pop()
        if isinstance(owner, Operation) and owner not in found:
            found[owner] = None
            waiting += [value.owner for value in owner.operands]
    return found


def walk_blocks(region: Region) -> Iterable[Block]:
    """Yield every block below a region, outermost first."""
    for block in region.blocks:
        yield block
        for op in block.ops:
            for inner in op.regions:
                yield from walk_blocks(inner)
