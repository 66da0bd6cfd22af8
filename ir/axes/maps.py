"""Axis maps: which axis of which operand each axis of a result is.

An op of any dialect may say, for each axis of each operand, what it has to do with its result:

    Along(2)              index i of result axis 2 reads index i: the axis is kept
    Along(2, offset=3)    … index i + 3: sliced; with an offset below 0 padded, or placed behind
    Along(1, 2, -1, 3)    … 3 indices from 2i - 1 on: windowed; what lies outside is padding
    Flat((1, 2), (1,))    axes 1 and 2 hold the elements of result axis 1, in order: merged;
                          Flat((1,), (1, 2)) is split
    Once(2)               of size 1, read for every index of result axis 2: broadcast
    All()                 every index is read for every element: reduced, contracted
    All(2)                likewise, and result axis 2 stands in its place: mixed

A result's axis that no axis of an operand names makes no difference to what is read of it. What a
map says is an upper bound of what is read, never less: `tests/axes/test_axis_maps.py` changes
operands element by element and looks what follows.

Layout, narrowing, streaming in rows and the engines that push constants through ops all read maps,
and nothing else, to follow an axis. An op without one (`None`) is opaque: it reads all of all.
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
from stepwell.ir.types import Dim

Shape = tuple[Dim, ...]
Order = tuple[int, ...]
"""An order of axes: a value in order `P` is `transpose(base, perm=P)` of a base."""


@dataclass(frozen=True, slots=True)
class Along:
    """Index i of result axis `axis` reads `reach` indices from `i * stride + offset` on."""

    axis: int
    stride: int = 1
    offset: int = 0
    reach: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether index i reads index i."""
        return self.stride == 1 and self.offset == 0 and self.reach == 1


@dataclass(frozen=True, slots=True)
class Once:
    """Of size 1: index 0 is read; `axis` is the result axis that it is broadcast to, if one is."""

    axis: int | None = None


@dataclass(frozen=True, slots=True)
class All:
    """Every index is read; `axis` is the result axis that stands in its place, if one does."""

    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Flat:
    """Operand axes `sources` and result axes `targets` hold the same elements, row-major."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


Link = Along | Once | All | Flat
Links = tuple[Link, ...]
"""One for each axis of an operand; the axes of a group share their `Flat`."""


@cache
def kept(rank: int) -> Links:
    """Every axis as it is."""
    return tuple(Along(axis) for axis in range(rank))


@dataclass(frozen=True)
class AxisMap:
    """What the axes of one result have to do with those of each operand.

    Attributes:
        shape: the result's.
        shapes: those of the operands.
        links: for each operand its links; None if all of it is read in a way that is not said.
    """

    shape: Shape
    shapes: tuple[Shape, ...]
    links: tuple[Links | None, ...]

    # -- one axis --------------------------------------------------------------------------------

    def after(self, operand: int, axis: int) -> int | None:
        """The result axis that an operand's axis is, whole and in order; None if it is none."""
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
        """The result axis of size 1 that an axis of size 1 is: the first with as much before it."""
        before = extent_of(self.shapes[operand][:axis])
        units = (at for at, size in enumerate(self.shape) if size == 1)
        return next((at for at in units if extent_of(self.shape[:at]) == before), None)

    def before(self, operand: int, axis: int) -> int | None:
        """The operand's axis that a result axis is, whole and in order; None if it is none."""
        for at in range(len(self.shapes[operand])):
            if self.after(operand, at) == axis:
                return at
        return None

    def seen(self, operand: int, axis: int) -> frozenset[int]:
        """The result axes along which it matters what stands where along an operand's axis."""
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
        """What is read of an operand for a box of the result; none of it has a range `(0, 0)`."""
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
        """The least box that holds `box` and that the same op computes from parts of operands.

        Mixed axes are whole in it; of axes that were merged or split, the leading part is whole
        rows of the operand.
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
        """The ranges of the sources of a group that hold the elements of a box's targets."""
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
        """The order of an operand if the result has `order`; None if it has none.

        Axes of size 1 that nothing ties to the result stay where they are.
        """
        if self._is_plain(operand, order):
            return order
        pairs = [(there, here) for here, there in self._tied(operand)]
        return _carried(pairs, order, self.shape, len(self.shapes[operand]))

    def order_after(self, operand: int, order: Order) -> Order | None:
        """The order of the result if an operand has `order`; None if it has none."""
        if self._is_plain(operand, order):
            return order
        shape = self.shapes[operand]
        return _carried(list(self._tied(operand)), order, shape, len(self.shape))

    def _is_plain(self, operand: int, order: Order) -> bool:
        """Whether each axis of an operand is the result's of that number, as most are."""
        return len(self.shape) == len(order) and self.links[operand] == kept(len(order))

    def _tied(self, operand: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(axes of an operand, axes of the result) that stand for each other."""
        links = self.links[operand] or ()
        for axis, link in enumerate(links):
            if not isinstance(link, Flat) and link.axis is not None:
                yield (axis,), (link.axis,)
        for group in _groups(links):
            yield group.sources, group.targets


def _window(link: Along, box: Range, size: Dim, result: Dim) -> Range:
    """The range of an operand's axis that a range of a result's axis reads."""
    range_ = numbers(box)
    if size == result and link.is_plain:
        return box
    if range_ is None:
        return (0, size)
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
    """The order that undoes another."""
    found = [0] * len(order)
    for position, axis in enumerate(order):
        found[axis] = position
    return tuple(found)


def lies_the_same(shape: Sequence[object], order: Sequence[int]) -> bool:
    """Whether an order leaves every element where it lies in memory: only axes of size 1 move."""
    standing = [axis for axis in order if shape[axis] != 1]
    return standing == sorted(standing)


def _carried(
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]], order: Order, shape: Shape, rank: int
) -> Order | None:
    """An order of one tensor's axes as one of another's, over groups of axes that correspond.

    Groups of several axes must stand together and in order in the base; there, axes of size 1
    count for nothing.
    """
    if len(order) != len(shape):
        return None
    groups = {given[0]: (given, made) for given, made in pairs}
    tied = {axis for given, _ in pairs for axis in given}
    standing = [axis for axis in inverse(order) if axis in tied]
    if any(size != 1 and axis not in tied for axis, size in enumerate(shape)):
        return None
    placed: list[int] = []
    while standing:
        group = groups.get(standing[0])
        if group is None or tuple(standing[: len(group[0])]) != group[0]:
            return None
        placed.extend(group[1])
        del standing[: len(group[0])]
    waiting = iter(placed)
    reached = set(placed)
    return inverse([next(waiting) if axis in reached else axis for axis in range(rank)])


AxisRule = Callable[[Any, int], AxisMap | None]
_RULES: dict[str, AxisRule] = {}
_F = TypeVar("_F", bound=AxisRule)


def maps(*names: str) -> Callable[[_F], _F]:
    """Register what gives the map of a result of these ops; None where arguments make it opaque."""

    def register(rule: _F) -> _F:
        for name in names:
            assert name not in _RULES, name
            _RULES[name] = rule
        return rule

    return register


def mapped_names(dialect: str) -> tuple[str, ...]:
    """The ops of a dialect that have a registered rule."""
    return tuple(name for name in _RULES if name.startswith(f"{dialect}."))


class HasAxes:
    """Mixed into op classes that may say how the axes of their results follow from operands."""

    def axis_map(self, result: int = 0) -> AxisMap | None:
        """The map of a result; None where the op is opaque.

        Ops whose classes are generated have it by name, from a rule registered with `maps`.
        """
        rule = _RULES.get(cast(Operation, self).name)
        return None if rule is None else rule(self, result)


def axis_map(op: object, result: int = 0) -> AxisMap | None:
    """The map of an op's result; None where it is opaque, as every op is that does not say."""
    return op.axis_map(result) if isinstance(op, HasAxes) else None
