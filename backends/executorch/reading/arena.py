"""What the arenas of a method hold while its instructions are read in order.

A plan names bytes, a program names values: two tensors at one offset are the same value if
nothing was written in between, and different ones if something was.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """Bytes `start` to `end` hold a part of `content`, which was written from byte `origin` on."""

    start: int
    end: int
    content: T
    origin: int
    is_whole: bool = True


@dataclass
class Arena(Generic[T]):
    """Non-overlapping byte ranges with what was last written to each."""

    _starts: list[int] = field(default_factory=list[int])
    _held: dict[int, Held[T]] = field(default_factory=dict[int, "Held[T]"])

    def write(self, start: int, end: int, content: T) -> None:
        """The range now holds `content`; what it touched has lost the bytes that it shares."""
        self.erase(start, end)
        self._add(Held(start, end, content, start))

    def read(self, start: int) -> Held[T] | None:
        """What was written as a range that begins here and is still whole."""
        held = self._held.get(start)
        return held if held is not None and held.is_whole else None

    def covering(self, start: int, end: int) -> list[Held[T]] | None:
        """The ranges that hold every byte from `start` to `end`, by place; None if some do not."""
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
        """Whether anything was written to any byte of a range."""
        at = bisect_left(self._starts, end)
        return bool(at) and self._held[self._starts[at - 1]].end > start

    def erase(self, start: int, end: int) -> None:
        """Nobody knows any more what the range holds; what lies outside it stays."""
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
        """Everything that is held whole, by place."""
        held = (self._held[start] for start in self._starts)
        return [each for each in held if each.is_whole]
