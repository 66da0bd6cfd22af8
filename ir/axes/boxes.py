"""Boxes: a range of indices for each axis of a tensor, the part of it that is read or computed."""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute

from stepwell.ir.types import Dim, dims

Range = tuple[Dim, Dim]
"""`(start, stop)`, stop excluded; a symbolic axis is read whole, `(0, its size)`."""

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
    return tuple(
        a if a == b or numbers(a) is None or numbers(b) is None else _hull(a, b)
        for a, b in zip(first, second, strict=True)
    )


def numbers(range_: Range) -> tuple[int, int] | None:
    """A range whose ends are numbers; None if one is symbolic."""
    start, stop = range_
    return (start, stop) if isinstance(start, int) and isinstance(stop, int) else None


def _hull(first: Range, second: Range) -> Range:
    one, other = numbers(first), numbers(second)
    assert one is not None and other is not None
    return min(one[0], other[0]), max(one[1], other[1])


def shape_of(box: Box) -> tuple[Dim, ...]:
    """The shape of a box's elements."""
    return tuple(
        stop - start if isinstance(start, int) and isinstance(stop, int) else stop
        for start, stop in box
    )


def elements(box: Box) -> int:
    """How many elements a box holds, symbolic axes counted as one."""
    return prod(size for size in shape_of(box) if isinstance(size, int))
