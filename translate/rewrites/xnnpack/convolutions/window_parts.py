"""Divisions of a window of taps into disjoint parts, each a lattice of rows and columns.

The rows of a part are a fixed step apart, and so are its columns. The part is then a window of its
own, dilated by the step, over the same image with other paddings. Taps that a part omits at an edge
reduce the padding at that edge; if the padding is too small, the image is cropped (a slice).
Interleaved parts extend over the whole window, so most parts need no slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.dialects.xnnpack.costs import TAPS, Costs

STEPS = 4
"""The greatest step tried."""
MOST = TAPS[-1]


@dataclass(frozen=True)
class Run:
    """Equally spaced taps: `first`, `first + step`, …, `count` of them."""

    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """Return the index of the window's last tap."""
        return self.first + self.step * (self.count - 1)


@dataclass(frozen=True)
class WindowAxis:
    """An axis of a window: taps, paddings and dilation, and the image's size if it is static."""

    taps: int
    before: int
    after: int
    dilation: int
    size: int | None

    def paddings(self, run: Run) -> tuple[int, int]:
        """Return the padding at both ends for a run of taps; negative padding crops the image."""
        before = self.before - run.first * self.dilation
        return before, self.after - (self.taps - 1 - run.last) * self.dilation

    def cut(self, run: Run) -> tuple[int, int] | None:
        """Return the amounts that are cropped off both ends; None if nothing would remain."""
        before, after = (max(0, -padding) for padding in self.paddings(run))
        if (before or after) and (self.size is None or before + after >= self.size):
            return None
        return before, after


Part = tuple[Run, Run]
"""The rows and columns of a part."""


@dataclass(frozen=True)
class Prices:
    """The cost of parts in nanoseconds: for each element of the result, and for each node."""

    costs: Costs
    elements: int
    """Elements of the result."""
    image: int
    """Elements of the image."""

    def part(self, taps: int, is_sliced: bool) -> float:
        """Return the cost of a part with its addition and the slice that it reads, if any."""
        costs = self.costs
        work = self.elements * (costs.window(taps) + costs.addition) + 2 * costs.node
        return work + is_sliced * (self.image * costs.slice + costs.node)

    def whole(self, taps: int) -> float:
        """Return the cost of the undivided window."""
        return self.elements * self.costs.window(taps) + self.costs.node


def least(
    rows: WindowAxis, columns: WindowAxis, prices: Prices
) -> tuple[float, tuple[Part, ...]] | None:
    """Return the cheapest division into parts and its cost; None if there is none."""
    found = [
        parts
        for parts in (
            _down(rows, columns, prices),
            _turned(_down(columns, rows, prices)),
        )
        if parts is not None
    ]
    if not found:
        return None
    cost, parts = min(found, key=lambda pair: (pair[0], len(pair[1])))
    return cost - prices.elements * prices.costs.addition - prices.costs.node, parts


def _turned(
    found: tuple[float, tuple[Part, ...]] | None,
) -> tuple[float, tuple[Part, ...]] | None:
    return None if found is None else (found[0], tuple((b, a) for a, b in found[1]))


def _down(
    rows: WindowAxis, columns: WindowAxis, prices: Prices
) -> tuple[float, tuple[Part, ...]] | None:
    """Return the cheapest parts such that parts with equal rows differ only in their columns."""
    across: dict[tuple[int, bool], tuple[float, tuple[Run, ...]] | None] = {}
    best: tuple[float, tuple[Part, ...]] | None = None
    for down in divisions(rows.taps):
        total, parts = 0.0, []
        for run in down:
            cut = rows.cut(run)
            if cut is None:
                break
            key = run.count, any(cut)
            if key not in across:
                across[key] = _across(columns, *key, prices)
            found = across[key]
            if found is None:
                break
            total += found[0]
            parts += [(run, column) for column in found[1]]
        else:
            if best is None or total < best[0]:
                best = total, tuple(parts)
    return best


def _across(
    columns: WindowAxis, count: int, is_sliced: bool, prices: Prices
) -> tuple[float, tuple[Run, ...]] | None:
    """Return the cheapest division of the columns for parts of `count` rows."""
    best: tuple[float, tuple[Run, ...]] | None = None
    for runs in divisions(columns.taps):
        total = 0.0
        for run in runs:
            cut = columns.cut(run)
            if cut is None or count * run.count > MOST:
                break
            total += prices.part(count * run.count, is_sliced or any(cut))
        else:
            if best is None or total < best[0]:
                best = total, runs
    return best


def divisions(taps: int) -> Iterator[tuple[Run, ...]]:
    """Yield divisions of an axis into runs of one step and limited length, each once."""
    seen: set[tuple[Run, ...]] = set()
    for step in range(1, min(STEPS, taps) + 1):
        for most in range(1, min(MOST, taps) + 1):
            runs = tuple(_runs(taps, step, most))
            if runs not in seen:
                seen.add(runs)
                yield runs


def _runs(taps: int, step: int, most: int) -> Iterator[Run]:
    for residue in range(step):
        left = len(range(residue, taps, step))
        first = residue
        while left:
            count = min(most, left)
            yield Run(first, step if count > 1 else 1, count)
            first += count * step
            left -= count
