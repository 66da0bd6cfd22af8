"""Transfer functions on intervals for every primitive of the scalar semantics.

Ends are computed as real numbers, and widened to the results that the element type may give
(`Kind.held`): an interval contains the result of an op on every engine. A rule takes the
evaluation, with the ranges of other terms, and the term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import inf

from stepwell.ir.declared.scalar_semantics import PRIMITIVES, Term
from stepwell.translate.range_analysis.evaluation import RULES, Evaluation, is_left_unread
from stepwell.translate.range_analysis.interval import (
    ANY,
    LEAST_EPSILON,
    SLACK,
    TRUTH,
    Interval,
    Number,
    above,
    below,
    hull,
    kind_of,
    of_number,
)

MOST_ELEMENTS = 1 << 63
"""The most elements of a tensor."""
Rule = Callable[[Evaluation, Term], Interval]


def _times(one: Number, other: Number) -> Number:
    return 0 if 0 in (one, other) else one * other


def _plus(one: Interval, other: Interval) -> Interval:
    cancels = (one.low == -inf and other.high == inf) or (one.high == inf and other.low == -inf)
    low = -inf if -inf in (one.low, other.low) else one.low + other.low
    high = inf if inf in (one.high, other.high) else one.high + other.high
    return Interval(low, high, one.nan or other.nan or cancels, one.whole and other.whole)


def _minus(x: Interval) -> Interval:
    return Interval(-x.high, -x.low, x.nan, x.whole)


def _product(one: Interval, other: Interval) -> Interval:
    ends = [_times(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    meets = (not one.is_bounded and other.meets_zero) or (not other.is_bounded and one.meets_zero)
    nan = one.nan or other.nan or meets
    return Interval(min(ends), max(ends), nan, one.whole and other.whole)


def _square(x: Interval) -> Interval:
    size = max(abs(x.low), abs(x.high))
    return Interval(_times(x.least_size, x.least_size), _times(size, size), x.nan, x.whole)


def _ratio(one: Number, other: Number) -> Number:
    """Return the unrounded quotient of two ends, the second of which is not zero."""
    if one in (inf, -inf):
        return one if other > 0 else -one
    return 0 if other in (inf, -inf) else Fraction(one) / Fraction(other)


# -- unary ---------------------------------------------------------------------------------------


def _of_one(function: Callable[[Interval], Interval]) -> Rule:
    return lambda ask, term: function(ask(term.operands[0]))


def _grows(function: Callable[[float], float], low: float = -inf, high: float = inf) -> Rule:
    """Return the transfer function of an increasing function whose results lie from `low` to
    `high`.
    """

    def at(end: Number) -> float:
        try:
            return function(float(end))
        except OverflowError:
            return inf if end > 0 else -inf

    def rule(x: Interval) -> Interval:
        return Interval(max(at(x.low), low), min(at(x.high), high), x.nan)

    return _of_one(rule)


def _between(low: float, high: float, of_infinity: bool = False, outside: float = inf) -> Rule:
    """Return the transfer function of a function whose results lie from `low` to `high`.

    The result may be NaN if an argument may be infinite and `of_infinity` is set, or if its
    magnitude may exceed `outside`.
    """

    def rule(x: Interval) -> Interval:
        nan = x.nan or (of_infinity and not x.is_bounded) or x.most > outside
        return Interval(low, high, nan)

    return _of_one(rule)


def _exp(end: float) -> float:
    return inf if end > 709 else math.exp(end)


def _sinh(end: float) -> float:
    return math.copysign(inf, end) if abs(end) > 709 else math.sinh(end)


def _expm1(end: float) -> float:
    return inf if end > 709 else math.expm1(end)


def _absolute(x: Interval) -> Interval:
    return Interval(x.least_size, max(abs(x.low), abs(x.high)), x.nan, x.whole)


def _log(x: Interval) -> Interval:
    # A number that an engine may flush to zero gives −∞.
    low = math.log(x.low) if x.low >= LEAST_EPSILON else -inf
    return Interval(low, math.log(max(x.high, LEAST_EPSILON)), x.nan or x.low < 0)


def _log1p(ask: Evaluation, term: Term) -> Interval:
    return _log(_plus(ask(term.operands[0]), of_number(1)))


def _sqrt(x: Interval) -> Interval:
    low, high = (math.sqrt(max(float(end), 0.0)) for end in (x.low, x.high))
    return Interval(low, high, x.nan or x.low < 0)


def _rsqrt(x: Interval) -> Interval:
    # It gives −∞ for −0.
    low = 1 / math.sqrt(max(x.high, LEAST_EPSILON)) if x.low > 0 else -inf
    high = 1 / math.sqrt(x.low) if x.low >= LEAST_EPSILON else inf
    return Interval(low, high, x.nan or x.low < 0)


def _inverse(x: Interval) -> Interval:
    if x.meets_zero:
        return Interval(-inf, inf, x.nan)  # A zero may have either sign.
    return Interval(_ratio(1, x.high), _ratio(1, x.low), x.nan)


def _cosh(x: Interval) -> Interval:
    low, high = (inf if e > 709 else math.cosh(float(e)) for e in (x.least_size, x.most))
    return Interval(low, high, x.nan)


def _whole(end: Callable[[Number], Number], other: Callable[[Number], Number]) -> Rule:
    return _of_one(lambda x: Interval(end(x.low), other(x.high), x.nan, True))


def _truncated(end: Number) -> Number:
    return below(end) if end > 0 else above(end)


def _rounded(end: Number) -> Number:
    return end if end in (inf, -inf) else round(end)


def _not(x: Interval) -> Interval:
    if not x.nan and not x.meets_zero:
        return of_number(0)
    return of_number(1) if x.is_number else TRUTH


def _invert(x: Interval) -> Interval:
    return TRUTH if x == TRUTH else Interval(-x.high - 1, -x.low - 1, False, True)


def _cast(ask: Evaluation, term: Term) -> Interval:
    assert term.to is not None
    kind, x = kind_of(term.to), ask(term.operands[0])
    if kind is None:
        return ANY
    if kind.is_float:
        return kind.rounded(x)
    if (kind.low, kind.high) == (0, 1):
        return TRUTH
    if x.is_bounded:
        is_zero = x.nan and ask.nan_is_zero  # Otherwise NaN may become any integer.
        if is_zero or not x.whole:
            x = Interval(min(x.low, 0), max(x.high, 0), x.nan and not is_zero)
        return kind.held(Interval(below(x.low), above(x.high), x.nan, True))
    return Interval(kind.low, kind.high, False, True)


# -- binary --------------------------------------------------------------------------------------


def _add(ask: Evaluation, term: Term) -> Interval:
    return _plus(ask(term.operands[0]), ask(term.operands[1]))


def _subtract(ask: Evaluation, term: Term) -> Interval:
    one, other = term.operands
    found = _plus(ask(one), _minus(ask(other)))
    extreme = ask.fold(other, "greatest", "least")
    if extreme is None or not ask.same(extreme[0].operands[0], one):
        return found
    is_most = extreme[0].function == "greatest"
    ends = (found.low, min(found.high, 0)) if is_most else (max(found.low, 0), found.high)
    return Interval(*ends, found.nan, found.whole)


def _multiply(ask: Evaluation, term: Term) -> Interval:
    one, other = term.operands
    if ask.same(one, other):
        return _square(ask(one))
    for part, factor in ((one, other), (other, one)):
        count = ask.elements_of_norm(part, factor)
        if count is not None:
            size = 2 * math.sqrt(count)  # The factor of two allows for rounding.
            return Interval(-size, size, _product(ask(part), ask(factor)).nan)
    x, weight = ask(one), other.value if isinstance(other, Term) else None
    return _product(x, ANY if is_left_unread(weight, ask.op, x) else ask(other))


def _divide(ask: Evaluation, term: Term) -> Interval:
    one, other = term.operands
    x, y = ask(one), ask(other)
    if ask.is_part_of_sum(one, other) and x.low >= 0:
        return Interval(0, 1 + 2.0**-20, x.nan or y.nan or y.low <= 0 or y.high == inf)
    if y.meets_zero:
        if x.whole and y.whole and not ask.is_float:
            return Interval(-max(abs(x.low), abs(x.high)), max(abs(x.low), abs(x.high)), False)
        return ANY
    meets = not x.is_bounded and not y.is_bounded
    ends = [_ratio(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return Interval(min(ends), max(ends), x.nan or y.nan or meets)


def _quotient(ask: Evaluation, term: Term) -> Interval:
    found, (x, y) = _divide(ask, term), map(ask, term.operands)
    low = below(found.low) if y.is_bounded else min(below(found.low), -1)  # −tiny / ∞ is −1.
    return Interval(low, above(found.high), found.nan or not x.is_bounded, True)


def _modulo(ask: Evaluation, term: Term) -> Interval:
    x, y = (ask(operand) for operand in term.operands)
    nan = x.nan or y.nan or y.meets_zero or not x.is_bounded
    if ask.is_float and not nan:  # A target subtracts a product of the quotient.
        nan = x.most / y.least_size > ask.largest
    return Interval(min(y.low, 0), max(y.high, 0), nan, x.whole and y.whole)


def _pick(pick: Callable[[Number, Number], Number]) -> Rule:
    def rule(ask: Evaluation, term: Term) -> Interval:
        x, y = (ask(operand) for operand in term.operands)
        nan, whole = x.nan or y.nan, x.whole and y.whole
        return Interval(pick(x.low, y.low), pick(x.high, y.high), nan, whole)

    return rule


def _power(ask: Evaluation, term: Term) -> Interval:
    x, y = (ask(operand) for operand in term.operands)
    is_positive = x.low > 0 or (x.low == 0 and y.low >= 0)  # −0 to the power of −1 is −∞.
    return Interval(0, inf, x.nan or y.nan) if is_positive else ANY


def _less(or_equal: bool) -> Rule:
    def rule(ask: Evaluation, term: Term) -> Interval:
        x, y = (ask(operand) for operand in term.operands)
        if x.low > y.high or (x.low == y.high and not or_equal):
            return of_number(0)
        below_all = x.high < y.low or (x.high == y.low and or_equal)
        return of_number(1) if below_all and not (x.nan or y.nan) else TRUTH

    return rule


def _equal(ask: Evaluation, term: Term) -> Interval:
    x, y = (ask(operand) for operand in term.operands)
    if x.high < y.low or y.high < x.low:
        return of_number(0)
    return of_number(1) if x.is_number and y.is_number else TRUTH


def _bits(ask: Evaluation, term: Term) -> Interval:
    parts = [ask(operand) for operand in term.operands]
    if all(part.low >= 0 and part.high <= 1 for part in parts):
        return TRUTH
    return Interval(-inf, inf, False, True)


def _where(ask: Evaluation, term: Term) -> Interval:
    condition, one, other = term.operands
    holds = ask(condition)
    sides = [ask.under(condition, one, True), ask.under(condition, other, False)]
    if holds.is_number:
        return sides[0] if holds.low else sides[1]
    return hull(sides)


# -- reductions ----------------------------------------------------------------------------------


def _total(ask: Evaluation, term: Term) -> Interval:
    operand = term.operands[0]
    found = ask.sum_of_products(operand)
    if found is not None:
        overflows = found.most > ask.largest or ask.slack > SLACK  # Halves are summed as halves.
        return Interval(found.low, found.high, found.nan or overflows)
    x, count, least = ask(operand), ask.count, ask.least_total(operand)
    mixed = x.low < 0 < x.high
    if count is None and ask.is_float and x.most * MOST_ELEMENTS < ask.largest:
        count = MOST_ELEMENTS
    if count is None or not x.is_bounded:
        # The sum of no elements is zero.
        low, high = -inf if x.low < 0 else least, inf if x.high > 0 else 0
        return Interval(low, high, x.nan or mixed, x.whole)
    if not ask.is_float:
        return Interval(min(count * x.low, 0), max(count * x.high, 0), False, x.whole)
    room = count * x.most * min(1.0, 2 * count * ask.slack)
    low, high = min(float(count * x.low), 0.0) - room, max(float(count * x.high), 0.0) + room
    low, high = max(low, least) if x.low >= 0 else low, high if x.high > 0 else 0.0
    return Interval(low, high, x.nan or (mixed and max(-low, high) > ask.largest))


def _average(ask: Evaluation, term: Term) -> Interval:
    x = ask(term.operands[0])
    low, high = -inf if x.low < 0 else x.low, inf if x.high > 0 else x.high
    if x.is_bounded and x.most < 1e30 * min(1.0, ask.largest):
        low, high = x.low, x.high  # No sum of fewer than 1e8 of them is infinite.
    # A sum of many numbers rounds more often than one product: a factor of two is enough slack.
    low = low / 2 if low > 0 else low * 2
    high = high * 2 if high > 0 else high / 2
    return Interval(low, high, x.nan or not x.is_bounded or ask.may_be_empty)


def _same(ask: Evaluation, term: Term) -> Interval:
    return ask(term.operands[0])


RULES.update(
    {
        "negate": _of_one(_minus),
        "absolute": _of_one(_absolute),
        "exp": _grows(_exp),
        "expm1": _grows(_expm1),
        "log": _of_one(_log),
        "log1p": _log1p,
        "sqrt": _of_one(_sqrt),
        "rsqrt": _of_one(_rsqrt),
        "reciprocal": _of_one(_inverse),
        "sin": _between(-1, 1, of_infinity=True),
        "cos": _between(-1, 1, of_infinity=True),
        "tan": _of_one(lambda x: ANY),
        "tanh": _between(-1, 1),
        "erf": _between(-1, 1),
        "atan": _between(-1.58, 1.58),
        "asin": _between(-1.58, 1.58, outside=1),
        "acos": _between(0, 3.16, outside=1),
        "sinh": _grows(_sinh),
        "cosh": _of_one(_cosh),
        "floor": _whole(below, below),
        "ceil": _whole(above, above),
        "round": _whole(_rounded, _rounded),
        "trunc": _whole(_truncated, _truncated),
        "is_nan": _of_one(lambda x: TRUTH if x.nan else of_number(0)),
        "sign": _of_one(
            lambda x: Interval(-1 if x.low < 0 else 0, 1 if x.high > 0 else 0, x.nan, True)
        ),
        "not_": _of_one(_not),
        "invert": _of_one(_invert),
        "cast": _cast,
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "divide": _divide,
        "quotient": _quotient,
        "modulo": _modulo,
        "minimum": _pick(min),
        "maximum": _pick(max),
        "power": _power,
        "less": _less(or_equal=False),
        "less_equal": _less(or_equal=True),
        "equal": _equal,
        "and_": _bits,
        "or_": _bits,
        "xor": _bits,
        "where": _where,
        "total": _total,
        "average": _average,
        "greatest": _same,
        "least": _same,
        "some": _same,
    }
)
assert RULES.keys() == PRIMITIVES.keys()
