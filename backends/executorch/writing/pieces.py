"""Offsets for buffers whose parts are born and die at different times.

A buffer that is written row by row while another is read row by row may stand a few rows before it
and take over its bytes as they are done with. The plan is therefore made of *pieces*: runs of bytes
at a fixed place in their buffer, each with its own lifetime. Two buffers may overlap as long as no
two of their pieces hold the same byte at the same time; which displacements do is a union of
intervals, one for each pair of pieces that live together.

Buffers are placed one after the other, each where the arena grows least (below the others, between
them or above), in several orders; the best order is then improved by swaps, drawn from a fixed
seed. No plan can be smaller than the bytes alive at the busiest moment, and the search ends there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from stepwell.backends.executorch.writing.memory import ALIGNMENT, Plan
from stepwell.ir.records import dataclass

_MOST_PAIRS = 1 << 20
_SWAPS = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a buffer, alive from step `first` to step `last`, inclusive."""

    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that keep their order: pieces by place."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes from the first to the last."""
        return max((piece.end for piece in self.pieces), default=0)

    @property
    def first(self) -> int:
        """The step at which any of it is born."""
        return min((piece.first for piece in self.pieces), default=0)

    @property
    def last(self) -> int:
        """The step after which all of it is dead."""
        return max((piece.last for piece in self.pieces), default=0)


def busiest_moment(buffers: Sequence[Buffer]) -> int:
    """The most bytes alive at one step: no arena can be smaller."""
    change: dict[int, int] = defaultdict(int)
    for buffer in buffers:
        for piece in buffer.pieces:
            change[piece.first] += piece.end - piece.start
            change[piece.last + 1] -= piece.end - piece.start
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def plan_pieces(buffers: Sequence[Buffer], alignment: int = ALIGNMENT) -> Plan:
    """An offset for each buffer, and the arena's size: multiples of `alignment`."""
    solid = [index for index, buffer in enumerate(buffers) if buffer.size]
    if not solid:
        return Plan((0,) * len(buffers), 0, 0)
    bound = -(-busiest_moment(buffers) // alignment) * alignment
    table = _Forbidden(buffers, alignment)
    orders = [sorted(solid, key=lambda i: (*weight(buffers[i]), i)) for weight in _WEIGHTS]
    best: tuple[int, dict[int, int], list[int]] | None = None
    for order in orders:
        offsets, arena = _place(order, buffers, table, alignment)
        if best is None or arena < best[0]:
            best = arena, offsets, order
        if best[0] <= bound:
            break
    assert best is not None
    best = _improved(best, bound, buffers, table, alignment)
    return Plan(tuple(best[1].get(i, 0) for i in range(len(buffers))), best[0], bound)


Weight = Callable[[Buffer], tuple[int, ...]]


def _by_size(buffer: Buffer) -> tuple[int, ...]:
    return -buffer.size, buffer.first


def _by_area(buffer: Buffer) -> tuple[int, ...]:
    return (-buffer.size * (buffer.last - buffer.first + 1),)


def _by_birth(buffer: Buffer) -> tuple[int, ...]:
    return buffer.first, -buffer.size


def _by_death(buffer: Buffer) -> tuple[int, ...]:
    return -buffer.last, -buffer.size


def _by_length(buffer: Buffer) -> tuple[int, ...]:
    return buffer.first - buffer.last, -buffer.size


_WEIGHTS: tuple[Weight, ...] = (_by_size, _by_area, _by_birth, _by_death, _by_length)


def _improved(
    best: tuple[int, dict[int, int], list[int]],
    bound: int,
    buffers: Sequence[Buffer],
    table: _Forbidden,
    alignment: int,
) -> tuple[int, dict[int, int], list[int]]:
    """The best order after moves of one buffer to another place in it."""
    drawn = random.Random(0)
    count = len(best[2])
    for _ in range(min(_SWAPS, 8 * count, 60_000 // max(1, count))):
        if best[0] <= bound or count < 2:
            break
        order = list(best[2])
        order.insert(drawn.randrange(count), order.pop(drawn.randrange(count)))
        offsets, arena = _place(order, buffers, table, alignment)
        if arena <= best[0]:
            best = arena, offsets, order
    return best


class _Forbidden:
    """For pairs of buffers, the displacements at which they would hold one byte at one time."""

    def __init__(self, buffers: Sequence[Buffer], alignment: int) -> None:
        self._buffers, self._alignment = buffers, alignment
        self._known: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}

    def between(self, placed: int, other: int) -> tuple[tuple[int, int], ...]:
        """Open intervals of (offset of `other` − offset of `placed`)."""
        key = (placed, other)
        if key not in self._known:
            found = self._between(self._buffers[placed], self._buffers[other])
            self._known[key] = found
            self._known[other, placed] = tuple((-high, -low) for low, high in reversed(found))
        return self._known[key]

    def _between(self, a: Buffer, b: Buffer) -> tuple[tuple[int, int], ...]:
        if a.last < b.first or b.last < a.first:
            return ()
        if len(a.pieces) * len(b.pieces) > _MOST_PAIRS:
            return ((-b.size, a.size),)
        raw = [
            (p.start - q.end, p.end - q.start)
            for p in a.pieces
            for q in b.pieces
            if p.first <= q.last and q.first <= p.last
        ]
        return tuple(_merged(raw))


def _merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Open intervals as disjoint ones, in order."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if found and low < found[-1][1]:
            if high > found[-1][1]:
                found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def _place(
    order: Sequence[int], buffers: Sequence[Buffer], table: _Forbidden, alignment: int
) -> tuple[dict[int, int], int]:
    """Each buffer where the arena grows least; offsets from 0, and the size."""
    offsets: dict[int, int] = {}
    low = high = 0
    for index in order:
        size = buffers[index].size
        if not offsets:
            offsets[index], high = 0, size
            continue
        banned = [
            (offset + start, offset + end)
            for other, offset in offsets.items()
            for start, end in table.between(other, index)
        ]
        best = None
        for at in _feasible(_merged(banned), low, high - size, alignment):
            growth = max(high, at + size) - min(low, at)
            if best is None or (growth, at) < best:
                best = (growth, at)
        assert best is not None
        offsets[index] = best[1]
        low, high = min(low, best[1]), max(high, best[1] + size)
    base = low  # A multiple of the alignment, as every offset is.
    arena = -(-(high - base) // alignment) * alignment
    return {index: offset - base for index, offset in offsets.items()}, arena


def _feasible(banned: Sequence[tuple[int, int]], low: int, high: int, alignment: int) -> list[int]:
    """Aligned offsets outside open intervals: the ends of gaps, and those of the arena."""
    tried = {low, -(-high // alignment) * alignment}
    for start, end in banned:
        tried.add(start // alignment * alignment)
        tried.add(-(-end // alignment) * alignment)
    return [at for at in tried if not any(start < at < end for start, end in banned)]
