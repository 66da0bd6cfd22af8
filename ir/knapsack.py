"""Multiple-choice knapsack: choose one option per item for the least loss within a cost, or the
least cost within a loss.

The search is exact: it keeps the Pareto frontier of partial sums, item by item (Nemhauser and
Ullmann 1969).
"""

from __future__ import annotations

from collections.abc import Sequence

Options = Sequence[tuple[float, float]]
"""Cost and loss of each option of one item."""
_Sum = tuple[float, float, "_Sum | None", int]
"""Total cost, total loss, the partial sum that this one extends, and the index of the last option.
"""


def frontier(things: Sequence[Options]) -> list[_Sum]:
    """Compute the Pareto frontier of total cost and total loss, cheapest first."""
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
    """List the index of the chosen option of each item."""
    found: list[int] = []
    at: _Sum | None = one
    while at is not None and at[3] >= 0:
        found.append(at[3])
        at = at[2]
    return found[::-1]


def least_loss(options: Sequence[Options], cost: float) -> list[int] | None:
    """Choose the options with the least loss whose total cost is at most `cost`; None if none
    exist.
    """
    fit = [one for one in frontier(options) if one[0] <= cost]
    return chosen(fit[-1]) if fit else None


def least_cost(options: Sequence[Options], loss: float) -> list[int] | None:
    """Choose the cheapest options whose total loss is at most `loss`; None if none exist."""
    return next((chosen(one) for one in frontier(options) if one[1] <= loss), None)
