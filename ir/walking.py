"""All ops of a program, as fast as Python walks a list."""

from __future__ import annotations

from collections.abc import Iterator

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
