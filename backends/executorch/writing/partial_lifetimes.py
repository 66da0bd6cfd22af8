"""Memory planning for buffers whose parts have different lifetimes.

A buffer that is written row by row, while another buffer is read row by row, may begin a few rows
before the other and reuse its dead bytes. The plan therefore consists of *pieces*: byte ranges at a
fixed position in their buffer, each with its own lifetime. Two buffers may overlap as long as no
two of their pieces use the same byte at the same time; the forbidden displacements are a union of
intervals, one for each pair of pieces that are live together.

Buffers are placed one after the other, each where the arena grows least (below the others, between
them or above), in several orders. The best order is then improved: the buffer for which the arena
grew is placed earlier, by draws from a fixed seed, and then the next one that does not fit. No
plan can be smaller than the peak of live bytes, and the search ends there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepwell.backends.executorch.writing.memory import ALIGNMENT, Plan, busiest_moment

_MOST_PAIRS = 1 << 20
_TRIES, _TRIED = 2000, 400_000
"""The largest number of orders that are tried, and of buffers in them."""
_ASTRAY = 0.05
"""The number of times that the search returns to the best order."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a buffer, live from step `first` to step `last`, inclusive."""

    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A contiguous range of arena bytes: pieces at fixed positions, in order of position."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """The number of bytes from the first to the last."""
        return max((piece.end for piece in self.pieces), default=0)

    @property
    def first(self) -> int:
        """The step at which the first piece is defined."""
        return min((piece.first for piece in self.pieces), default=0)

    @property
    def last(self) -> int:
        """The step after which all pieces are dead."""
        return max((piece.last for piece in self.pieces), default=0)


def plan_pieces(buffers: Sequence[Buffer]) -> Plan:
    """Return an offset for each buffer, and the arena's size: multiples of `ALIGNMENT`."""
    solid = [index for index, buffer in enumerate(buffers) if buffer.size]
    if not solid:
        return Plan((0,) * len(buffers), 0, 0)
    pieces = (piece for buffer in buffers for piece in buffer.pieces)
    peak = busiest_moment((p.end - p.start, p.first, p.last) for p in pieces)
    bound = -(-peak // ALIGNMENT) * ALIGNMENT
    table = _Forbidden(buffers)
    orders = [sorted(solid, key=lambda i: (*weight(buffers[i]), i)) for weight in _WEIGHTS]
    best: _Placed | None = None
    for order in orders:
        placed = table.place(order, None if best is None else best[0] - 1)
        if not isinstance(placed, int):
            best = placed
        assert best is not None
        if best[0] <= bound:
            break
    assert best is not None
    best = _improved(best, bound, table)
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


_Placed = tuple[int, dict[int, int], Sequence[int], int]
"""The arena's size, an offset for each buffer, their order, and the last for which it grew."""


def _improved(best: _Placed, bound: int, table: _Forbidden) -> _Placed:
    """Return the best placement found by moving buffers that did not fit earlier in the order."""
    drawn = random.Random(0)
    count = len(best[2])
    order, blamed = list(best[2]), best[3]
    for _ in range(min(_TRIES, 8 * count, _TRIED // max(1, count))):
        if best[0] <= bound or count < 2:
            break
        at = order.index(blamed)
        far = drawn.random() < 0.5
        to = drawn.randrange(at + 1) if far else max(0, at - drawn.randrange(1, 20))
        order.insert(to, order.pop(at))
        if to == at or drawn.random() < 0.1:
            order.insert(drawn.randrange(count), order.pop(drawn.randrange(count)))
        placed = table.place(order, best[0] - 1)
        if not isinstance(placed, int):
            best, order, blamed = placed, list(placed[2]), placed[3]
        elif drawn.random() < _ASTRAY:
            order, blamed = list(best[2]), best[3]
        else:
            blamed = placed
    return best


class _Forbidden:
    """The displacements of two buffers at which both would use a byte at the same time."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._sizes = [buffer.size for buffer in buffers]
        self._lives = [(buffer.first, buffer.last) for buffer in buffers]
        self._known: list[list[_Intervals | None]] = [[None] * len(buffers) for _ in buffers]

    def _between(self, placed: int, other: int) -> _Intervals:
        """Return the forbidden open intervals of (offset of `other` − offset of `placed`)."""
        found = self._apart(placed, other)
        self._known[other][placed] = found
        self._known[placed][other] = tuple((-high, -low) for low, high in reversed(found))
        return found

    def _apart(self, placed: int, other: int) -> _Intervals:
        a, b = self._buffers[placed], self._buffers[other]
        lives, others = self._lives[placed], self._lives[other]
        if lives[1] < others[0] or others[1] < lives[0]:
            return ()
        if len(a.pieces) * len(b.pieces) > _MOST_PAIRS:
            return ((-self._sizes[other], self._sizes[placed]),)
        raw = [
            (p.start - q.end, p.end - q.start)
            for p in a.pieces
            for q in b.pieces
            if p.first <= q.last and q.first <= p.last
        ]
        return tuple(_merged(raw))

    def place(self, order: Sequence[int], most: int | None) -> _Placed | int:
        """Place each buffer where the arena grows least; or return the one that exceeds `most`."""
        offsets: dict[int, int] = {}
        low = high = grew = 0
        for index in order:
            size = self._sizes[index]
            if not offsets:
                offsets[index], high, grew = 0, size, index
                continue
            known = self._known[index]
            banned: list[tuple[int, int]] = []
            for other, offset in offsets.items():
                apart = known[other]
                if apart is None:
                    apart = self._between(other, index)
                for start, end in apart:
                    banned.append((offset + start, offset + end))
            best = None
            for at in _feasible(_merged(banned), low, high - size):
                growth = max(high, at + size) - min(low, at)
                if best is None or (growth, at) < best:
                    best = (growth, at)
            assert best is not None
            if most is not None and best[0] > most:
                return index  # It does not shrink again.
            grew = index if best[0] > high - low else grew
            offsets[index] = best[1]
            low, high = min(low, best[1]), max(high, best[1] + size)
        base = low  # A multiple of the alignment, like every offset.
        arena = -(-(high - base) // ALIGNMENT) * ALIGNMENT
        if most is not None and arena > most:
            return grew
        return arena, {index: offset - base for index, offset in offsets.items()}, order, grew


_Intervals = tuple[tuple[int, int], ...]


def _merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return open intervals merged to disjoint intervals, in order."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if found and low < found[-1][1]:
            if high > found[-1][1]:
                found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def _feasible(banned: Sequence[tuple[int, int]], low: int, high: int) -> list[int]:
    """Yield aligned offsets outside of disjoint open intervals: the ends of gaps and of the
    arena.
    """
    tried = {low, -(-high // ALIGNMENT) * ALIGNMENT}
    for start, end in banned:
        tried.add(start // ALIGNMENT * ALIGNMENT)
        tried.add(-(-end // ALIGNMENT) * ALIGNMENT)
    free: list[int] = []
    index, count = 0, len(banned)
    for at in sorted(tried):
        while index < count and banned[index][1] <= at:
            index += 1
        if index == count or at <= banned[index][0]:
            free.append(at)
    return free
