"""Plans that pick elements of an axis by known indices with slices, concatenations and views.

A flip of 192 elements does not need 192 slices: viewed as `[4, 4, 4, 3]` each axis is flipped
separately, with 15 slices. The same holds for nearest resizes (a period of indices), windows, tiles
and repeats. The search views the indices as `q · outer + inner`, as columns, as two parts, and as
plain runs, and takes the plan with the fewest ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd

import numpy as np
from xdsl.ir import SSAValue

from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import cat, slice_axis, view

Indices = tuple[int, ...]

LONGEST = 4096
"""With more elements than this, indices are viewed as runs alone."""
WIDEST = 16
"""The most columns that are picked one by one."""
AT_ONCE = 5
"""Tensors that one concatenation takes."""


@dataclass(frozen=True)
class Runs:
    """A plan: concatenate the ranges `(start, stop)` of the axis, in order."""

    runs: tuple[tuple[int, int], ...]

    @property
    def cost(self) -> int:
        """Return the number of slices and concatenations."""
        return len(set(self.runs)) + joins(len(self.runs))


@dataclass(frozen=True)
class Split:
    """The elements from `start` to `stop`, viewed as `[…, period]` and picked on both axes."""

    start: int
    stop: int
    period: int
    outer: Plan
    inner: Plan
    cost: int


@dataclass(frozen=True)
class Columns:
    """The picked elements, viewed as `[n, len(columns)]` and picked column by column."""

    count: int
    columns: tuple[Plan, ...]
    cost: int


@dataclass(frozen=True)
class Parts:
    """The concatenation of the elements that parts of the indices pick."""

    parts: tuple[Plan, ...]
    cost: int


Plan = Runs | Split | Columns | Parts


def joins(count: int) -> int:
    """Return the number of concatenations that join this many tensors."""
    return -(-(count - 1) // (AT_ONCE - 1))


@dataclass
class Planner:
    """Finds plans; create one planner for each rewrite of an op, because it caches plans."""

    known: dict[tuple[Indices, int, int], Plan] = field(default_factory=dict)

    def plan(self, indices: Indices, size: int, depth: int = 6) -> Plan:
        """Return the cheapest plan that was found for indices into an axis."""
        key = indices, size, depth
        if key not in self.known:
            plain = Runs(tuple(runs_of(indices)))
            best: Plan = plain
            if depth and plain.cost > 2 and len(indices) <= LONGEST:
                for other in self._others(indices, size, depth - 1):
                    best = min(best, other, key=lambda plan: plan.cost)
            self.known[key] = best
        return self.known[key]

    def _others(self, indices: Indices, size: int, depth: int) -> Iterator[Plan]:
        count = len(indices)
        held = np.array(indices)
        for width in (w for w in range(1, count) if count % w == 0):
            rows = held.reshape(-1, width)
            steps = rows - rows[:, :1]
            if (steps != steps[0]).any():
                continue
            low = int(steps[0].min())
            starts = [int(start) + low for start in rows[:, 0]]
            inner = tuple(int(step) - low for step in steps[0])
            splits = list(self._split(starts, inner, size, depth))
            yield from splits
            if not splits and 1 < width <= WIDEST:
                yield self._columns(indices, width, size, depth)
        if depth >= 4:
            yield from (self._parts(indices, at, size) for at in {1, count // 2, count - 1})

    def _split(
        self, starts: Sequence[int], inner: Indices, size: int, depth: int
    ) -> Iterator[Plan]:
        """View the axis as `[size / q, q]`, for the steps q between the starts of rows."""
        step = reduce(gcd, (start - starts[0] for start in starts))
        span = max(inner) + 1
        periods = {step, span} if step and step % span == 0 else {step}
        for period in (p for p in periods if p >= span and p > 1):
            for shift in {0, min(starts) % period, max(0, max(starts) + period - size)}:
                first = min(starts) % period - shift
                end = size - (size - first) % period
                if shift + span > period or first < 0 or max(starts) - shift + period > end:
                    continue
                places = tuple((start - shift - first) // period for start in starts)
                outer = self.plan(places, (end - first) // period, depth)
                within = self.plan(tuple(i + shift for i in inner), period, depth)
                cut = (first, end) != (0, size)
                cost = outer.cost + within.cost + cut + 1
                yield Split(first, end, period, outer, within, cost)
        if step == 0 and len(starts) > 1:  # The same row is repeated.
            outer = Runs(((0, 1),) * len(starts))
            low = starts[0]
            within = self.plan(tuple(low + i for i in inner), size, depth)
            yield Split(0, size, size, outer, within, outer.cost + within.cost + 1)

    def _columns(self, indices: Indices, width: int, size: int, depth: int) -> Plan:
        columns = tuple(self.plan(indices[at::width], size, depth) for at in range(width))
        cost = sum(column.cost + 1 for column in columns) + joins(width)
        return Columns(len(indices) // width, columns, cost)

    def _parts(self, indices: Indices, at: int, size: int) -> Plan:
        parts = tuple(self.plan(part, size, 3) for part in (indices[:at], indices[at:]))
        return Parts(parts, sum(part.cost for part in parts) + 1)


def runs_of(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Return maximal sequences of successive numbers, as half-open ranges."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs


def pick(rw: Rewriter, value: SSAValue, at: int, plan: Plan) -> SSAValue:
    """Build the elements that a plan picks from axis `at`, whose size is known."""
    shape = dims(value.type)
    before, behind = shape[:at], shape[at + 1 :]
    if isinstance(plan, Runs):
        return cat(rw, slices(rw, value, at, plan.runs), at)
    if isinstance(plan, Parts):
        return cat(rw, [pick(rw, value, at, part) for part in plan.parts], at)
    if isinstance(plan, Columns):
        columns = [
            view(rw, pick(rw, value, at, column), (*before, plan.count, 1, *behind))
            for column in plan.columns
        ]
        count = plan.count * len(columns)
        return view(rw, cat(rw, columns, at + 1), (*before, count, *behind))
    value = slice_axis(rw, value, at, plan.start, plan.stop)
    blocks = (plan.stop - plan.start) // plan.period
    value = view(rw, value, (*before, blocks, plan.period, *behind))
    inner_first = isinstance(plan.outer, Runs) and len(plan.outer.runs) > 1
    for axis, part in sorted(((at, plan.outer), (at + 1, plan.inner)), reverse=inner_first):
        value = pick(rw, value, axis, part)
    value_dims = dims(value.type)
    first, second = value_dims[at], value_dims[at + 1]
    assert isinstance(first, int) and isinstance(second, int)
    return view(rw, value, (*before, first * second, *behind))


def slices(
    rw: Rewriter, value: SSAValue, at: int, runs: Sequence[tuple[int, int]]
) -> list[SSAValue]:
    """Build a slice for each run; equal runs share it."""
    slice_axes = {run: slice_axis(rw, value, at, *run) for run in dict.fromkeys(runs)}
    return [slice_axes[run] for run in runs]
