"""Memory planning: offsets of intermediate tensors in the arena, from their lifetimes.

Two tensors may share bytes when their lifetimes do not overlap. Finding the smallest arena is
NP-hard; several heuristics are tried and the smallest result is kept:

* *in order of birth*, each tensor takes the tightest hole left by dead tensors: n log n;
* *in order of weight*, each tensor takes the tightest hole among those alive at the same time,
  largest first, or largest product of size and lifetime first, or longest-lived first (after
  Pisarchyk & Lee, "Efficient memory management for deep neural net inference", 2020): linear in
  the number of pairs that are live together.

No plan can be smaller than the peak of live bytes. Once a result is close to
that bound, no other heuristic is tried. The second kind is not tried either if so many tensors
are live together that it would be quadratic.
"""

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

ALIGNMENT = 16
"""In bytes; the alignment of tensors in ExecuTorch's own memory planning."""

_MAX_PAIRS_PER_TENSOR = 32
_CLOSE = 8  # An arena within 1/2^8 of the bound is good enough.


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor of `size` bytes, live from step `first` to step `last`, both inclusive.

    Inclusive at both ends: an operand that dies in the step that defines a result still
    occupies its bytes, so that no kernel's output overlaps one of its inputs.
    """

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A memory plan: `offsets[i]` in bytes for the i-th lifetime, and the arena's size in bytes."""

    offsets: tuple[int, ...]
    arena_size: int
    lower_bound: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> Plan:
    """Return offsets such that overlapping lifetimes do not share bytes.

    Every offset and the arena's size are multiples of `ALIGNMENT`. Tensors without bytes have
    offset 0.
    """
    sizes = [lifetime.size + -lifetime.size % ALIGNMENT for lifetime in lifetimes]
    spans = zip(sizes, lifetimes, strict=True)
    bound = busiest_moment((size, life.first, life.last) for size, life in spans)
    offsets, arena = _in_order_of_birth(lifetimes, sizes)
    enough = bound + (bound >> _CLOSE)
    if arena > enough:
        for weight in _WEIGHTS:
            tried = _in_order(lifetimes, sizes, weight)
            if tried is None:
                break
            if tried[1] < arena:
                offsets, arena = tried
            if arena <= enough:
                break
    return Plan(tuple(offsets), arena, bound)


def widened_by_loops(
    spans: dict[int, tuple[int, int]], loops: Iterable[tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Extend lifetimes in loops: a value used in a loop is live for the whole loop.

    `spans` are first and last steps, and `loops` the first step of each loop and its jump back. A
    forward jump only skips instructions, so it reads nothing that was not live. Only a backward
    jump can reach bytes that were reused in the meantime.
    """
    for start, stop in sorted(loops, key=lambda loop: loop[1] - loop[0]):
        for base, (first, last) in spans.items():
            if first <= stop and last >= start:
                spans[base] = (min(first, start), max(last, stop))
    return spans


def busiest_moment(lives: Iterable[tuple[int, int, int]]) -> int:
    """Return (bytes, first step, last step) of the peak of live bytes, a lower bound of the
    arena.
    """
    change: dict[int, int] = defaultdict(int)
    for size, first, last in lives:
        change[first] += size
        change[last + 1] -= size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


class _Holes:
    """The free byte ranges below the arena's top, coalesced, found by size and by position."""

    def __init__(self) -> None:
        self.top = 0
        self._by_size: list[tuple[int, int]] = []  # (size, offset), sorted
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}

    def take(self, size: int) -> int:
        """Return the offset for `size` bytes: in the tightest hole, else at the top of the
        arena.
        """
        index = bisect_left(self._by_size, (size, -1))
        if index < len(self._by_size):
            hole, offset = self._by_size.pop(index)
            self._forget(offset, offset + hole)
            if hole > size:
                self._add(offset + size, offset + hole)
            return offset
        offset = self.top
        start = self._start_of.get(self.top)
        if start is not None:  # The hole at the very top is too small: grow it.
            self._remove(start, self.top)
            offset = start
        self.top = offset + size
        return offset

    def give_back(self, start: int, end: int) -> None:
        """Free the bytes from `start` to `end`."""
        before = self._start_of.get(start)
        if before is not None:
            self._remove(before, start)
            start = before
        after = self._end_of.get(end)
        if after is not None:
            self._remove(end, after)
            end = after
        self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        insort(self._by_size, (end - start, start))
        self._end_of[start], self._start_of[end] = end, start

    def _remove(self, start: int, end: int) -> None:
        del self._by_size[bisect_left(self._by_size, (end - start, start))]
        self._forget(start, end)

    def _forget(self, start: int, end: int) -> None:
        del self._end_of[start], self._start_of[end]


def _in_order_of_birth(
    lifetimes: Sequence[Lifetime], sizes: Sequence[int]
) -> tuple[list[int], int]:
    offsets = [0] * len(sizes)
    holes = _Holes()
    dying: list[tuple[int, int]] = []
    # Of tensors defined together the largest first, so that small ones fill the remaining holes.
    for index in sorted(range(len(sizes)), key=lambda i: (lifetimes[i].first, -sizes[i], i)):
        if not sizes[index]:
            continue
        while dying and dying[0][0] < lifetimes[index].first:
            _, dead = heapq.heappop(dying)
            holes.give_back(offsets[dead], offsets[dead] + sizes[dead])
        offsets[index] = holes.take(sizes[index])
        heapq.heappush(dying, (lifetimes[index].last, index))
    return offsets, holes.top


class _Neighbors:
    """The placed tensors that are live during a given span.

    Spans are stored in classes by the power of two of their length, each in buckets of that
    length, so that a span is in at most two buckets of its class, and a query inspects only
    the buckets that it crosses.
    """

    def __init__(self) -> None:
        self._classes: dict[int, dict[int, list[int]]] = {}

    def add(self, index: int, span: Lifetime) -> None:
        width = (span.last - span.first + 1).bit_length()
        buckets = self._classes.setdefault(width, defaultdict(list))
        buckets[span.first >> width].append(index)

    def alive_during(self, span: Lifetime, lifetimes: Sequence[Lifetime]) -> list[int]:
        found: list[int] = []
        for width, buckets in self._classes.items():
            low, high = (span.first >> width) - 1, span.last >> width
            keys = range(low, high + 1) if high - low < len(buckets) else list(buckets)
            for key in keys:
                for index in buckets.get(key, ()):
                    other = lifetimes[index]
                    if other.first <= span.last and span.first <= other.last:
                        found.append(index)
        return found


Weight = Callable[[Lifetime, int], tuple[int, int]]


def _by_size(span: Lifetime, size: int) -> tuple[int, int]:
    return size, span.last - span.first


def _by_area(span: Lifetime, size: int) -> tuple[int, int]:
    return size * (span.last - span.first + 1), -span.first


def _by_size_then_birth(span: Lifetime, size: int) -> tuple[int, int]:
    return size, span.first


def _by_length(span: Lifetime, size: int) -> tuple[int, int]:
    return span.last - span.first, size


_WEIGHTS: tuple[Weight, ...] = (_by_size, _by_area, _by_size_then_birth, _by_length)


def _in_order(
    lifetimes: Sequence[Lifetime], sizes: Sequence[int], weight: Weight
) -> tuple[list[int], int] | None:
    """Place tensors in order of weight, each in the tightest hole; None if too many are live
    together.
    """
    offsets = [0] * len(sizes)
    neighbors = _Neighbors()
    arena = pairs = 0
    most_pairs = _MAX_PAIRS_PER_TENSOR * len(sizes) + 65536
    order = sorted(range(len(sizes)), key=lambda i: weight(lifetimes[i], sizes[i]), reverse=True)
    for index in order:
        size = sizes[index]
        if not size:
            continue
        alive = neighbors.alive_during(lifetimes[index], lifetimes)
        pairs += len(alive)
        if pairs > most_pairs:
            return None
        best, tightest, reached = -1, -1, 0
        for start, end in sorted((offsets[i], offsets[i] + sizes[i]) for i in alive):
            hole = start - reached
            if hole >= size and (tightest < 0 or hole < tightest):
                best, tightest = reached, hole
            reached = max(reached, end)
        offsets[index] = best if best >= 0 else reached
        arena = max(arena, offsets[index] + size)
        neighbors.add(index, lifetimes[index])
    return offsets, arena
