"""Boxes: a range of indices for each axis of a tensor, the part of it that is read or computed."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import Dim, dims

Range = tuple[Dim, Dim]
"""`(start, stop)`, stop excluded; of a symbolic axis of size n whole, `(0, n)`, or `(1, n - 2)`."""

Box = tuple[Range, ...]


def whole(type_: Attribute) -> Box:
    """All of a tensor."""
    return whole_of(dims(type_))


def whole_of(shape: tuple[Dim, ...]) -> Box:
    """All of a tensor of this shape."""
    return tuple((0, size) for size in shape)


def nothing(type_: Attribute) -> Box:
    """None of a tensor."""
    return tuple((0, 0) for _ in dims(type_))


def is_nothing(box: Box) -> bool:
    """Whether a box holds no element."""
    return any(start == stop for start, stop in box)


def join(first: Box, second: Box) -> Box:
    """The least box that holds two boxes of one tensor."""
    if is_nothing(first) or is_nothing(second):
        return second if is_nothing(first) else first
    return tuple(_hull(a, b) for a, b in zip(first, second, strict=True))


def numbers(range_: Range) -> tuple[int, int] | None:
    """A range whose ends are numbers; None if one is symbolic."""
    start, stop = range_
    return (start, stop) if isinstance(start, int) and isinstance(stop, int) else None


def _hull(first: Range, second: Range) -> Range:
    return _end(first[0], second[0], -1), _end(first[1], second[1], 1)


def _end(one: Dim, other: Dim, sign: int) -> Dim:
    """The lesser or the greater of two ends of ranges of one axis.

    Where that hangs on a size: no range begins ahead of 0, none ends behind a symbolic end.
    """
    apart = settled(Size.of(other) - one)
    if isinstance(apart, int):
        return other if apart * sign > 0 else one
    if sign < 0:
        return 0
    return other if isinstance(one, int) else one


def shape_of(box: Box) -> tuple[Dim, ...]:
    """The shape of a box's elements."""
    return tuple(settled(Size.of(stop) - start) for start, stop in box)


OPEN = 64
"""What a symbol of a size is taken to be where work is estimated."""


def elements(box: Box) -> int:
    """How many elements a box holds, where symbols are `OPEN`."""
    return prod(map(estimated, shape_of(box)))


def estimated(size: Dim) -> int:
    """A size where symbols are `OPEN`."""
    if isinstance(size, int):
        return size
    return OPEN if size == UNKNOWN else size.evaluate(dict.fromkeys(size.symbols, OPEN))
