"""Alignment of a reshape's axes: which axes hold the same elements on both sides, by element order
and not by size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import prod
from zlib import crc32

from stepwell.ir.sizes.size import UNKNOWN, Dim, Size

Group = tuple[tuple[int, ...], tuple[int, ...]]


def aligned(before: Sequence[Dim], after: Sequence[Dim]) -> list[Group] | None:
    """Compute the finest groups of axes, in order, that hold the same elements on both sides of a
    reshape.

    Axes of size one belong to no group, because they do not affect the order of elements. Symbolic
    sizes are multiplied out. The result is None if the groups cannot be determined (a size of `?`,
    empty tensors).
    """
    if UNKNOWN in before or UNKNOWN in after:
        return None
    groups: list[Group] = []
    left = deque((axis, size) for axis, size in enumerate(before) if size != 1)
    right = deque((axis, size) for axis, size in enumerate(after) if size != 1)
    while left and right:
        (source, first), (target, second) = left.popleft(), right.popleft()
        sources, targets = [source], [target]
        while first != second:
            shorter, axes = (left, sources) if _rank(first) < _rank(second) else (right, targets)
            if not shorter:
                return None
            axis, size = shorter.popleft()
            axes.append(axis)
            if shorter is left:
                first = first * size
            else:
                second = second * size
        groups.append((tuple(sources), tuple(targets)))
    return None if left or right else groups


def dropped_units(before: Sequence[Dim], after: Sequence[Dim]) -> frozenset[int] | None:
    """Return the unit axes of `before` that are missing in `after`; None if other axes differ, too.

    Of several adjacent unit axes any may be the missing one: they hold the same elements.
    """
    dropped: set[int] = set()
    at = 0
    for index, size in enumerate(before):
        remaining = len(before) - index
        if (
            at < len(after)
            and size == after[at]
            and not (
                size == 1
                and remaining > len(after) - at
                and before[index + 1 :][:1] == after[at : at + 1]
            )
        ):
            at += 1
        elif size == 1:
            dropped.add(index)
        else:
            return None
    return frozenset(dropped) if at == len(after) else None


def extent_of(shape: Sequence[Dim]) -> int | Size:
    """Return the number of elements of a tensor of this shape."""
    return prod(shape, start=1)


class _Primes(dict[str, int]):
    """Values for symbols, to order symbolic sizes: each gets a large number, usually a prime."""

    def __missing__(self, name: str) -> int:
        return 7919 + 2 * crc32(name.encode())


def _rank(size: int | Size) -> int:
    """Return the sort key of a size: a size that divides another one has a smaller key."""
    return size if isinstance(size, int) else size.evaluate(_Primes())
