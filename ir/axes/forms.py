"""Build the axis maps that most ops have: elementwise, permuted, sliced, concatenated, reduced,
reshaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from xdsl.ir import Operation, SSAValue

from stepwell.ir.axes.alignment import aligned
from stepwell.ir.axes.maps import All, Along, AxisMap, Flat, Link, Links, Once, Shape, inverse
from stepwell.ir.types import dims


def mapped(op: Operation, *links: Links | None, result: int = 0) -> AxisMap:
    """Build an op's axis map from the links of its operands, in order; None: opaque operand."""
    shapes = tuple(_shape(value) for value in op.operands)
    given = (*links, *(None for _ in shapes[len(links) :]))
    return AxisMap(dims(op.results[result].type), shapes, given[: len(shapes)])


def _shape(value: SSAValue) -> Shape:
    return dims(value.type) if hasattr(value.type, "element_type") else ()


@lru_cache(maxsize=4096)
def broadcast(given: Shape, made: Shape) -> Links:
    """Return the links of a broadcast operand: trailing axes are aligned, and an axis of size 1 is
    read for every index.
    """
    extra = len(made) - len(given)
    return tuple(
        Once(axis + extra) if size == 1 and made[axis + extra] != 1 else Along(axis + extra)
        for axis, size in enumerate(given)
    )


def elementwise(op: Operation, operands: int | None = None, result: int = 0) -> AxisMap:
    """Build the map of an elementwise op with broadcasting.

    Args:
        op: the op.
        operands: the number of leading operands that are elementwise; the rest are read whole.
        result: the index of the result.
    """
    result_dims = dims(op.results[result].type)
    values = op.operands if operands is None else op.operands[:operands]
    return mapped(
        op, *(broadcast(dims(value.type), result_dims) for value in values), result=result
    )


def permuted(order: Sequence[int]) -> Links:
    """Return the axis links of a permutation: result axis i is operand axis `order[i]`."""
    return tuple(Along(axis) for axis in inverse(order))


def moved(offsets: Sequence[int], strides: Sequence[int] | None = None) -> Links:
    """Return the axis links of a slice: result index i of each axis reads index `i * stride +
    offset`.
    """
    steps = strides or [1] * len(offsets)
    return tuple(
        Along(axis, stride, offset)
        for axis, (offset, stride) in enumerate(zip(offsets, steps, strict=True))
    )


def concatenated(shapes: Sequence[Shape], axis: int) -> list[Links]:
    """Return the axis links of a concatenation along an axis; with symbolic sizes, offsets are
    unknown.
    """
    sizes = [shape[axis] for shape in shapes]
    known = [size for size in sizes if isinstance(size, int)]
    begins = [sum(known[:index]) for index in range(len(known))]
    link: list[Link] = [Along(axis, offset=-begin) for begin in begins]
    if len(known) < len(sizes):
        link = [All(axis)] * len(sizes)
    return [
        tuple(at if other == axis else Along(other) for other in range(len(shape)))
        for shape, at in zip(shapes, link, strict=True)
    ]


def along_rows(rank: int, axes: Iterable[int]) -> Links:
    """Return links that keep all axes but `axes`, each of which is read whole for every index."""
    mixed = set(axes)
    return tuple(All(axis) if axis in mixed else Along(axis) for axis in range(rank))


def reduced(rank: int, axes: Iterable[int], keep: bool) -> Links:
    """Return the axis links of a reduction; reduced axes are removed, or kept with size 1."""
    gone = set(axes)
    links: list[Link] = []
    at = 0
    for axis in range(rank):
        if axis in gone:
            links.append(All(at if keep else None))
            at += keep
        else:
            links.append(Along(at))
            at += 1
    return tuple(links)


@lru_cache(maxsize=4096)
def reshaped(before: Shape, after: Shape) -> Links | None:
    """Return the axis links of a reshape; None if the correspondence of axes is unknown."""
    groups = aligned(before, after)
    if groups is None:
        return None
    of = {axis: Flat(sources, targets) for sources, targets in groups for axis in sources}
    return tuple(of.get(axis, Once()) for axis in range(len(before)))
