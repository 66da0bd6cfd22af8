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
    """Bytes `start` to `end` hold `content`."""

    start: int
    end: int
    content: T


@dataclass
class Arena(Generic[T]):
    """Non-overlapping byte ranges with what was last written to each as a whole."""

    _starts: list[int] = field(default_factory=list[int])
    _held: dict[int, Held[T]] = field(default_factory=dict[int, "Held[T]"])

    def write(self, start: int, end: int, content: T) -> None:
        """The range now holds `content`; whatever it touched is gone."""
        self.erase(start, end)
        insort(self._starts, start)
        self._held[start] = Held(start, end, content)

    def read(self, start: int) -> Held[T] | None:
        """What was written as a range that begins here and is still whole."""
        return self._held.get(start)

    def touches(self, start: int, end: int) -> bool:
        """Whether anything was written to any byte of a range."""
        at = bisect_left(self._starts, end)
        return bool(at) and self._held[self._starts[at - 1]].end > start

    def erase(self, start: int, end: int) -> None:
        """Nobody knows any more what the range holds."""
        at = bisect_left(self._starts, start)
        if at and self._held[self._starts[at - 1]].end > start:
            at -= 1
        stop = at
        while stop < len(self._starts) and self._starts[stop] < end:
            del self._held[self._starts[stop]]
            stop += 1
        del self._starts[at:stop]

    def contents(self) -> list[Held[T]]:
        """Everything that is held, by place."""
        return [self._held[start] for start in self._starts]
