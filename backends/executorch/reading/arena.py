"""The contents of a method's arenas while its instructions are read in order.

A `.pte` refers to bytes, a program to values: two tensors at one offset are the same value if
nothing was written in between, and different values otherwise.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """Arena bytes `start` to `end`, which hold a part of value `content`; the value was written
    from byte `origin` on.
    """

    start: int
    end: int
    content: T
    origin: int
    is_whole: bool = True


@dataclass
class Arena(Generic[T]):
    """Non-overlapping byte ranges with the last content written to each."""

    _starts: list[int] = field(default_factory=list[int])
    _held: dict[int, Held[T]] = field(default_factory=dict[int, "Held[T]"])

    def write(self, start: int, end: int, content: T) -> None:
        """Write `content` to a range; other contents lose the bytes in this range."""
        self.erase(start, end)
        self._add(Held(start, end, content, start))

    def read(self, start: int) -> Held[T] | None:
        """Return the value that was written to the arena at this offset, unless a later write
        overwrote a part of it.
        """
        held = self._held.get(start)
        return held if held is not None and held.is_whole else None

    def covering(self, start: int, end: int) -> list[Held[T]] | None:
        """Return the ranges that cover every byte from `start` to `end`, in order; None if some do
        not.
        """
        at = max(bisect_left(self._starts, start + 1) - 1, 0)
        found: list[Held[T]] = []
        reached = start
        for begin in self._starts[at:]:
            held = self._held[begin]
            if held.end <= reached:
                continue
            if held.start > reached or reached >= end:
                break
            found.append(held)
            reached = held.end
        return found if reached >= end else None

    def touches(self, start: int, end: int) -> bool:
        """Whether any byte of a range was written."""
        at = bisect_left(self._starts, end)
        return bool(at) and self._held[self._starts[at - 1]].end > start

    def erase(self, start: int, end: int) -> None:
        """Mark the content of a range as unknown; bytes outside the range are unchanged."""
        at = bisect_left(self._starts, start)
        if at and self._held[self._starts[at - 1]].end > start:
            at -= 1
        stop = at
        left: list[Held[T]] = []
        while stop < len(self._starts) and self._starts[stop] < end:
            held = self._held.pop(self._starts[stop])
            for low, high in ((held.start, start), (end, held.end)):
                if low < high:
                    left.append(Held(low, high, held.content, held.origin, False))
            stop += 1
        del self._starts[at:stop]
        for held in left:
            self._add(held)

    def _add(self, held: Held[T]) -> None:
        insort(self._starts, held.start)
        self._held[held.start] = held

    def contents(self) -> list[Held[T]]:
        """Return all values that no later write overwrote in part, in order of position."""
        held = (self._held[start] for start in self._starts)
        return [each for each in held if each.is_whole]
