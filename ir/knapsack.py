"""One option for each of several things: the least loss within a cost, or the least cost.

Exact: all sums that nothing beats in both are kept, thing by thing (Nemhauser and Ullmann 1969).
"""

from __future__ import annotations

from collections.abc import Sequence

Options = Sequence[tuple[float, float]]
"""Cost and loss of each option of one thing."""
_Sum = tuple[float, float, "_Sum | None", int]
"""Cost and loss of options so far, the sum it goes on from, and the last option."""


def frontier(things: Sequence[Options]) -> list[_Sum]:
    """The sums that no other beats in cost and loss, the cheapest first."""
    sums: list[_Sum] = [(0.0, 0.0, None, -1)]
    for options in things:
        longer = [
            (one[0] + cost, one[1] + loss, one, at)
            for one in sums
            for at, (cost, loss) in enumerate(options)
        ]
        longer.sort(key=lambda one: one[:2])
        sums, least = [], float("inf")
        for one in longer:
            if one[1] < least:
                sums.append(one)
                least = one[1]
    return sums


def chosen(one: _Sum) -> list[int]:
    """Which option of each thing a sum is made of."""
    found: list[int] = []
    at: _Sum | None = one
    while at is not None and at[3] >= 0:
        found.append(at[3])
        at = at[2]
    return found[::-1]


def least_loss(options: Sequence[Options], cost: float) -> list[int] | None:
    """The options of the least loss that cost no more; None where none do."""
    fit = [one for one in frontier(options) if one[0] <= cost]
    return chosen(fit[-1]) if fit else None


def least_cost(options: Sequence[Options], loss: float) -> list[int] | None:
    """The cheapest options that lose no more; None where all lose more."""
    return next((chosen(one) for one in frontier(options) if one[1] <= loss), None)
