"""Range analysis of sizes: bounds and comparisons from the ranges of symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from stepwell.ir.sizes.size import (
    UNKNOWN,
    Atom,
    Computed,
    Extreme,
    Monomial,
    Quotient,
    Size,
    Symbol,
    extreme,
    rebuilt,
)

_SMALL_QUOTIENTS = 9
"""The number of values that are tried to prove that a quotient of sizes is constant."""

Ranges = Mapping[str, tuple[int, int | None]]
"""The least and the greatest value of a symbol; None is unbounded. A symbol without an entry is
unbounded.
"""

Interval = tuple[int | None, int | None]
"""The least and the greatest value of an expression, inclusive; None is unbounded."""


def interval(size: Size, ranges: Ranges) -> Interval:
    """Bound a size's value; the bounds are not always the tightest ones."""
    low, high = _by_terms(size, ranges)
    if low is not None and low == high:
        return low, high
    for monomial, coefficient in size.terms:
        (atom, power), *others = monomial or ((None, 0),)
        if not isinstance(atom, Quotient) or power != 1 or others:
            continue
        divisor = atom.divisor.number
        if divisor is None or divisor < 1:
            continue
        # (a − d + 1)/d ≤ ⌊a/d⌋ ≤ a/d: common terms of a and of the sum cancel.
        rest = (size - Size(((monomial, coefficient),))) * divisor
        ends = [atom.dividend * coefficient, (atom.dividend - divisor + 1) * coefficient]
        least, most = ends if coefficient < 0 else ends[::-1]
        lower, upper = interval(rest + least, ranges)[0], interval(rest + most, ranges)[1]
        low = _tighter(low, None if lower is None else -(-lower // divisor), max)
        high = _tighter(high, None if upper is None else upper // divisor, min)
    return low, high


def _tighter(one: int | None, other: int | None, choose: Callable[..., int]) -> int | None:
    known = [bound for bound in (one, other) if bound is not None]
    return choose(known) if known else None


def _by_terms(size: Size, ranges: Ranges) -> Interval:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in size.terms:
        least, most = _product_interval(monomial, ranges)
        if coefficient < 0:
            least, most = most, least
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return low, high


def holds(relation: str, difference: Size, ranges: Ranges) -> bool:
    """Whether a difference is `==`, `!=`, `<`, `<=`, `>` or `>=` 0 for all values of the symbols.

    False means that this was not proved.
    """
    low, high = interval(within(difference, ranges), ranges)
    if relation in (">", ">="):
        return low is not None and low >= (relation == ">")
    if relation in ("<", "<="):
        return high is not None and high <= -(relation == "<")
    if relation == "==":
        return low == high == 0
    return relation == "!=" and ((low is not None and low > 0) or (high is not None and high < 0))


def settled_within(size: int | Size, ranges: Ranges) -> int | Size:
    """Return the constant that a size equals for all symbols within their ranges, else the size."""
    if (
        isinstance(size, int)
        or size == UNKNOWN
        or not any(isinstance(atom, Quotient | Extreme) for atom in size.atoms)
    ):
        return size
    low, high = interval(within(size, ranges), ranges)
    return low if low is not None and low == high else size


def within(size: Size, ranges: Ranges) -> Size:
    """Simplify a size for symbols within their ranges.

    A maximum loses arguments that another argument is never below; a quotient with only one
    possible value becomes that constant.
    """
    total = Size.of(0)
    for monomial, coefficient in size.terms:
        term = Size.of(coefficient)
        for atom, power in monomial:
            term = term * _within(atom, ranges) ** power
        total = total + term
    return total


def _within(atom: Atom, ranges: Ranges) -> Size:
    if isinstance(atom, Computed):
        return Size.computed(atom.text)
    if not isinstance(atom, Symbol):
        changed = rebuilt(atom, lambda size: within(size, ranges))
        atoms = [a for m, _ in changed.terms for a, _ in m]
        if atoms != [atom] and not all(isinstance(a, Symbol) for a in atoms):
            return within(changed, ranges)
        if isinstance(atom, Quotient) or atoms != [atom]:
            low, high = interval(changed, ranges)
            return Size.of(low) if low is not None and low == high else changed
        return _without_dominated(atom, ranges)
    low, high = ranges.get(atom.name, (None, None))
    return Size.of(low) if low is not None and low == high else Size.symbol(atom.name)


def _without_dominated(atom: Extreme, ranges: Ranges) -> Size:
    """Remove the arguments of an extreme that another argument always dominates."""
    kept = list(atom.sizes)
    for size in atom.sizes:
        others = [other for other in kept if other is not size]
        if any(_is_beyond(other, size, atom.kind, ranges) for other in others):
            kept = others
    return extreme(atom.kind, kept)


def _is_beyond(other: Size, size: Size, kind: str, ranges: Ranges) -> bool:
    low, high = interval(other - size, ranges)
    return (low is not None and low >= 0) if kind == "Max" else (high is not None and high <= 0)


def _product_interval(monomial: Monomial, ranges: Ranges) -> Interval:
    found: Interval = (1, 1)
    for atom, power in monomial:
        bounds = _interval(atom, ranges)
        for _ in range(power):
            found = _multiplied(found, bounds)
        if power % 2 == 0 and (found[0] is None or found[0] < 0):
            found = (0, found[1])
    return found


def _multiplied(first: Interval, second: Interval) -> Interval:
    if None not in (*first, *second):
        corners = [a * b for a, b in product(first, second) if a is not None and b is not None]
        return min(corners), max(corners)
    if all(low is not None and low >= 0 for low in (first[0], second[0])):
        lows = (first[0] or 0) * (second[0] or 0)
        zero = (0, 0) in (first, second)
        return lows, 0 if zero else None
    return (0, 0) if (0, 0) in (first, second) else (None, None)


def _interval(atom: Atom, ranges: Ranges) -> Interval:
    if isinstance(atom, Symbol):
        return ranges.get(atom.name, (None, None))
    if isinstance(atom, Computed):
        return None, None
    if isinstance(atom, Extreme):
        lows, highs = zip(*(interval(size, ranges) for size in atom.sizes), strict=True)
        if atom.kind == "Max":
            known = [low for low in lows if low is not None]
            return max(known, default=None), _all(highs, max)
        known = [high for high in highs if high is not None]
        return _all(lows, min), min(known, default=None)
    low, high = interval(atom.dividend, ranges)
    least, most = interval(atom.divisor, ranges)
    if least is None or least < 1:
        return None, None
    if atom.divisor.number is None:
        for value in range(_SMALL_QUOTIENTS):
            left = atom.dividend - value * atom.divisor
            if holds(">=", left, ranges) and holds("<", left - atom.divisor, ranges):
                return value, value
    # For a ≥ 0, ⌊a/d⌋ falls with d towards 0; for a < 0, it rises towards −1.
    if low is not None:
        low = low // least if low < 0 else (0 if most is None else low // most)
    if high is not None:
        high = high // least if high >= 0 else (-1 if most is None else high // most)
    return low, high


def _all(bounds: Sequence[int | None], choose: Callable[[list[int]], int]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return choose(known) if len(known) == len(bounds) else None
