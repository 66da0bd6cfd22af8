"""Boxes: the part of a tensor that is read or computed, as a range of indices for each axis."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import Dim, dims

Range = tuple[Dim, Dim]
"""`(start, stop)`, stop excluded; for a symbolic axis of size n, `(0, n)` or `(1, n - 2)`."""

Box = tuple[Range, ...]


def whole(type_: Attribute) -> Box:
    """Return the box of a whole tensor: the range `(0, size)` for each axis."""
    return whole_of(dims(type_))


def whole_of(shape: tuple[Dim, ...]) -> Box:
    """Return the box of a whole tensor of this shape: the range `(0, size)` for each axis."""
    return tuple((0, size) for size in shape)


def nothing(type_: Attribute) -> Box:
    """Return the empty box of a tensor: the range `(0, 0)` for each axis."""
    return tuple((0, 0) for _ in dims(type_))


def is_nothing(box: Box) -> bool:
    """Whether a box contains no element."""
    return any(start == stop for start, stop in box)


def join(first: Box, second: Box) -> Box:
    """Return the smallest box that contains two boxes of one tensor."""
    if is_nothing(first) or is_nothing(second):
        return second if is_nothing(first) else first
    return tuple(_hull(a, b) for a, b in zip(first, second, strict=True))


def numbers(range_: Range) -> tuple[int, int] | None:
    """Return a range unchanged if both its ends are numbers; None if an end is symbolic."""
    start, stop = range_
    return (start, stop) if isinstance(start, int) and isinstance(stop, int) else None


def _hull(first: Range, second: Range) -> Range:
    return _end(first[0], second[0], -1), _end(first[1], second[1], 1)


def _end(one: Dim, other: Dim, sign: int) -> Dim:
    """Return the smaller or the larger end of two ranges of one axis.

    If the order depends on a symbolic size, the result is 0 for a start and the symbolic end for a
    stop, because no range begins before 0 and none ends after a symbolic end.
    """
    apart = settled(Size.of(other) - one)
    if isinstance(apart, int):
        return other if apart * sign > 0 else one
    if sign < 0:
        return 0
    return other if isinstance(one, int) else one


def shape_of(box: Box) -> tuple[Dim, ...]:
    """Return the shape of a box: the number of indices along each axis."""
    return tuple(settled(Size.of(stop) - start) for start, stop in box)


OPEN = 64
"""The value of a symbol when work is estimated."""


def elements(box: Box) -> int:
    """Estimate the number of elements of a box; each symbol of a size counts as `OPEN`, 64."""
    return prod(map(estimated, shape_of(box)))


def estimated(size: Dim) -> int:
    """Estimate the value of a size; each symbol counts as `OPEN`, 64."""
    if isinstance(size, int):
        return size
    return OPEN if size == UNKNOWN else size.evaluate(dict.fromkeys(size.symbols, OPEN))
