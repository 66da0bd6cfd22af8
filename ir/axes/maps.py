"""Axis maps: the correspondence between the axes of an op's operands and those of its results.

An op of any dialect may declare for each axis of each operand how it is related to the result:

    Along(2)              index i of result axis 2 reads index i: the axis is kept
    Along(2, offset=3)    … index i + 3: sliced; padded or concatenated with an offset below 0
    Along(1, 2, -1, 3)    … 3 indices from 2i - 1 on: windowed; indices outside are padding
    Flat((1, 2), (1,))    axes 1 and 2 hold the elements of result axis 1, in order: merged;
                          Flat((1,), (1, 2)) is split
    Once(2)               of size 1, read for every index of result axis 2: broadcast
    All()                 every index is read for every element: reduced, contracted
    All(2)                likewise, and result axis 2 replaces it: mixed

If no axis of an operand names a result axis, the index along that axis does not affect which
elements of the operand are read. A map is an upper bound of the elements that are read:
`tests/axes/test_axis_maps.py` changes operands element by element and compares the changes of the
result with the map.

Layout assignment, narrowing, streaming in rows and scale folding follow axes by these maps only. An
op without a map (`None`) is opaque: each element of its results may depend on all elements of its
operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeVar, cast

from xdsl.ir import Operation

from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.axes.boxes import Box, Range, is_nothing, numbers, whole_of
from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import Dim

Shape = tuple[Dim, ...]
Order = tuple[int, ...]
"""An order of axes: a value in order `P` is `transpose(base, perm=P)` of its base."""


@dataclass(frozen=True, slots=True)
class Along:
    """An operand axis that is kept, sliced or windowed: index i of result axis `axis` reads `reach`
    indices of it, from `i * stride + offset` on.
    """

    axis: int
    stride: int = 1
    offset: int = 0
    reach: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether index i of the result axis reads exactly index i of the operand axis."""
        return self.stride == 1 and self.offset == 0 and self.reach == 1


@dataclass(frozen=True, slots=True)
class Once:
    """An operand axis of size 1; `axis` is the result axis to which it is broadcast, if any."""

    axis: int | None = None


@dataclass(frozen=True, slots=True)
class All:
    """An operand axis that is read whole; `axis` is the result axis that replaces it, if any."""

    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Flat:
    """An operand axis that is merged or split: operand axes `sources` and result axes `targets`
    hold the same elements in row-major order.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]


Link = Along | Once | All | Flat
Links = tuple[Link, ...]
"""One link for each axis of an operand; the axes of a group share their `Flat`."""


@cache
def kept(rank: int) -> Links:
    """Return the axis links of an operand whose axes are those of the result."""
    return tuple(Along(axis) for axis in range(rank))


@dataclass(frozen=True)
class AxisMap:
    """The relation of the axes of one result to those of each operand.

    Attributes:
        shape: the shape of the result.
        shapes: the shapes of the operands.
        links: the links of each operand; None if it is opaque.
    """

    shape: Shape
    shapes: tuple[Shape, ...]
    links: tuple[Links | None, ...]

    # -- one axis --------------------------------------------------------------------------------

    def after(self, operand: int, axis: int) -> int | None:
        """Return the result axis that equals an operand's axis in size and order, or None."""
        links = self.links[operand]
        link = None if links is None else links[axis]
        if isinstance(link, Along) and link.is_plain:
            at = link.axis
        elif isinstance(link, Flat) and len(link.sources) == len(link.targets) == 1:
            (at,) = link.targets
        elif isinstance(link, Once) and link.axis is None:
            return self._unit_after(operand, axis)
        else:
            return None
        return at if self.shape[at] == self.shapes[operand][axis] else None

    def _unit_after(self, operand: int, axis: int) -> int | None:
        """Return the result axis of size 1 with as many elements before it as the
        operand's axis.
        """
        before = extent_of(self.shapes[operand][:axis])
        units = (at for at, size in enumerate(self.shape) if size == 1)
        return next((at for at in units if extent_of(self.shape[:at]) == before), None)

    def before(self, operand: int, axis: int) -> int | None:
        """Return the operand's axis that equals a result axis in size and order, or None."""
        for at in range(len(self.shapes[operand])):
            if self.after(operand, at) == axis:
                return at
        return None

    def seen(self, operand: int, axis: int) -> frozenset[int]:
        """Return the result axes that depend on the order of elements along an operand's axis."""
        links = self.links[operand]
        if links is None:
            return frozenset(range(len(self.shape)))
        match links[axis]:
            case Along(axis=at):
                return frozenset((at,))
            case Flat(targets=targets):
                return frozenset(targets)
            case All(axis=at) if at is not None:
                return frozenset((at,))
            case _:
                return frozenset()

    # -- a part ----------------------------------------------------------------------------------

    def reads(self, operand: int, box: Box) -> Box:
        """Return the part of an operand that a part of the result reads, both as index ranges.

        If nothing is read, the range of each axis is `(0, 0)`.
        """
        links, shape = self.links[operand], self.shapes[operand]
        if links is None:
            return whole_of(shape)
        found = list(whole_of(shape))
        for axis, link in enumerate(links):
            if isinstance(link, Along):
                found[axis] = _window(link, box[link.axis], shape[axis], self.shape[link.axis])
        for group in _groups(links):
            ranges = self._unflattened(group, box, shape)
            for axis, range_ in zip(group.sources, ranges, strict=True):
                found[axis] = range_
        read = tuple(found)
        return tuple((0, 0) for _ in shape) if is_nothing(read) else read

    def computable(self, box: Box) -> Box:
        """Return the smallest part of the result, containing `box`, that the same op computes from
        parts of its operands.

        Axes whose elements depend on a whole operand axis are contained whole. Merged or split
        axes are cut at whole rows of the operand along the leading axis.
        """
        made = list(box)
        for shape, links in zip(self.shapes, self.links, strict=True):
            for link in links or ():
                if isinstance(link, All) and link.axis is not None:
                    made[link.axis] = (0, self.shape[link.axis])
            for group in _groups(links or ()):
                if not self._is_in_rows(group, box, shape):
                    for axis in group.targets:
                        made[axis] = (0, self.shape[axis])
        return tuple(made)

    def _is_in_rows(self, group: Flat, box: Box, shape: Shape) -> bool:
        cut = [axis for axis in group.targets if box[axis] != (0, self.shape[axis])]
        if not cut:
            return True
        lead, range_ = group.targets[0], numbers(box[cut[0]])
        inner, unit = (_product(s, g[1:]) for s, g in self._sides(group, shape))
        if cut != [lead] or range_ is None or inner is None or unit is None:
            return False
        return not any(end * inner % unit for end in range_)

    def _sides(self, group: Flat, shape: Shape) -> tuple[tuple[Shape, tuple[int, ...]], ...]:
        return (self.shape, group.targets), (shape, group.sources)

    def _unflattened(self, group: Flat, box: Box, shape: Shape) -> list[Range]:
        """Return index ranges along merged or split operand axes that contain the elements which
        a part of the result reads.
        """
        whole: list[Range] = [(0, shape[axis]) for axis in group.sources]
        if all(box[axis] == (0, self.shape[axis]) for axis in group.targets):
            return whole
        ranges = [numbers(box[axis]) for axis in group.targets]
        first = last = 0
        for axis, range_ in zip(group.targets, ranges, strict=True):
            size = self.shape[axis]
            if range_ is None or not isinstance(size, int):
                return whole
            if range_[0] == range_[1]:
                return [(0, 0) for _ in whole]
            first, last = first * size + range_[0], last * size + range_[1] - 1
        for index in range(len(group.sources)):
            unit = _product(shape, group.sources[index + 1 :])
            if unit is None:
                return whole
            start, stop = first // unit, last // unit
            whole[index] = (start, stop + 1)
            if start != stop:
                break
            first, last = first % unit, last % unit
        return whole

    # -- orders ----------------------------------------------------------------------------------

    def order_before(self, operand: int, order: Order) -> Order | None:
        """Return how to permute an operand's axes if those of the result are permuted by `order`.

        The result is None if no permutation of the operand has this effect.

        Axes of size 1 without a link to the result keep their positions.
        """
        if self._is_plain(operand, order):
            return order
        pairs = [(there, here) for here, there in self._tied(operand)]
        return _carried(pairs, order, self.shape, len(self.shapes[operand]))

    def order_after(self, operand: int, order: Order) -> Order | None:
        """Return how the result's axes are permuted if those of an operand are permuted by `order`.

        The result is None if no permutation of the result corresponds.
        """
        if self._is_plain(operand, order):
            return order
        shape = self.shapes[operand]
        return _carried(list(self._tied(operand)), order, shape, len(self.shape))

    def _is_plain(self, operand: int, order: Order) -> bool:
        """Whether each axis of an operand corresponds to the result axis of the same index."""
        return len(self.shape) == len(order) and self.links[operand] == kept(len(order))

    def _tied(self, operand: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield pairs: axes of an operand, and the result axes that hold the same elements."""
        links = self.links[operand] or ()
        for axis, link in enumerate(links):
            if not isinstance(link, Flat) and link.axis is not None:
                yield (axis,), (link.axis,)
        for group in _groups(links):
            yield group.sources, group.targets


def _window(link: Along, box: Range, size: Dim, result: Dim) -> Range:
    """Return the range of an operand's axis that a range of a result's axis reads."""
    range_ = numbers(box)
    if size == result and link.is_plain:
        return box
    if range_ is None:
        is_tail = link.stride == link.reach == 1 and size not in (UNKNOWN, result)
        if not is_tail or settled(Size.of(result) + link.offset) != size:
            return (0, size)
        start, stop = (settled(Size.of(end) + link.offset) for end in box)
        return start, stop
    if range_[0] == range_[1]:
        return (0, 0)
    ends = [range_[0] * link.stride + link.offset, (range_[1] - 1) * link.stride + link.offset]
    start, stop = min(ends), max(ends) + link.reach
    if isinstance(size, int):
        start, stop = max(start, 0), min(stop, size)
        return (start, stop) if start < stop else (0, 0)
    return (start, stop) if start >= 0 and link.reach == 1 else (0, size)


def _groups(links: Iterable[Link]) -> list[Flat]:
    return list(dict.fromkeys(link for link in links if isinstance(link, Flat)))


def _product(shape: Shape, axes: Iterable[int]) -> int | None:
    sizes = [shape[axis] for axis in axes]
    known = [size for size in sizes if isinstance(size, int)]
    return prod(known) if len(known) == len(sizes) else None


def inverse(order: Sequence[int]) -> Order:
    """Return the inverse of a permutation."""
    found = [0] * len(order)
    for position, axis in enumerate(order):
        found[axis] = position
    return tuple(found)


def lies_the_same(shape: Sequence[object], order: Sequence[int]) -> bool:
    """Whether a permutation keeps the order of elements in memory, because only axes of size 1
    move.
    """
    ordered = [axis for axis in order if shape[axis] != 1]
    return ordered == sorted(ordered)


def _carried(
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]], order: Order, shape: Shape, rank: int
) -> Order | None:
    """Translate a permutation of one tensor's axes to another's, by groups of axes that correspond.

    The permutation must keep the axes of a group adjacent and in order, apart from axes of size 1.
    """
    if len(order) != len(shape):
        return None
    groups = {given[0]: (given, made) for given, made in pairs}
    tied = {axis for given, _ in pairs for axis in given}
    ordered = [axis for axis in inverse(order) if axis in tied]
    if any(size != 1 and axis not in tied for axis, size in enumerate(shape)):
        return None
    placed: list[int] = []
    while ordered:
        group = groups.get(ordered[0])
        if group is None or tuple(ordered[: len(group[0])]) != group[0]:
            return None
        placed.extend(group[1])
        del ordered[: len(group[0])]
    waiting = iter(placed)
    reached = set(placed)
    return inverse([next(waiting) if axis in reached else axis for axis in range(rank)])


AxisRule = Callable[[Any, int], AxisMap | None]
_AXIS_MAPS: dict[str, AxisRule] = {}
_F = TypeVar("_F", bound=AxisRule)


def maps(*names: str) -> Callable[[_F], _F]:
    """Decorate a function that returns the axis map of a result of these ops, or None if the
    op is opaque.
    """

    def register(rule: _F) -> _F:
        for name in names:
            assert name not in _AXIS_MAPS, name
            _AXIS_MAPS[name] = rule
        return rule

    return register


def mapped_names(dialect: str) -> tuple[str, ...]:
    """List the ops of a dialect whose axis map is defined by a registered rule."""
    return tuple(name for name in _AXIS_MAPS if name.startswith(f"{dialect}."))


class HasAxes:
    """A mixin for op classes that may declare how the axes of their results follow from
    operands.
    """

    def axis_map(self, result: int = 0) -> AxisMap | None:
        """Return the axis map of a result; None if the op is opaque.

        Ops with generated classes look up, by name, a function registered with `maps`.
        """
        rule = _AXIS_MAPS.get(cast(Operation, self).name)
        return None if rule is None else rule(self, result)


def axis_map(op: object, result: int = 0) -> AxisMap | None:
    """Return the axis map of an op's result; None if it is opaque, as any op without a
    declaration.
    """
    return op.axis_map(result) if isinstance(op, HasAxes) else None
