"""Intervals: sets of numbers between two ends, optionally with NaN, or of integers only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, frexp, inf, isfinite, isnan

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float64Type, IntegerType, Signedness
from xdsl.ir import Attribute

from stepwell.ir.dtypes import is_float
from stepwell.ir.identity_cache import once_each

Number = int | float | Fraction


@dataclass(frozen=True, slots=True)
class Interval:
    """A set of numbers: from `low` to `high`; also NaN, if `nan`; only integers, if `whole`.

    The ends of integers are exact.
    """

    low: Number = -inf
    high: Number = inf
    nan: bool = True
    whole: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether no element is infinite."""
        return -inf < self.low and self.high < inf

    @property
    def is_number(self) -> bool:
        """Whether all elements are the same number."""
        return self.low == self.high and not self.nan and self.is_bounded

    @property
    def most(self) -> float:
        """Return the maximum magnitude of the interval's numbers."""
        return float(max(abs(self.low), abs(self.high)))

    @property
    def meets_zero(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0 <= self.high

    @property
    def least_size(self) -> Number:
        """Return the minimum magnitude of the interval's numbers."""
        return 0 if self.meets_zero else min(abs(self.low), abs(self.high))


ANY = Interval()
TRUTH = Interval(0, 1, False, True)


def of_number(number: Number) -> Interval:
    """Return the interval of one number; for NaN, any number."""
    if isinstance(number, float) and isnan(number):
        return ANY
    number = int(number) if isinstance(number, bool) else number
    whole = isinstance(number, int) or (isfinite(number) and number % 1 == 0)
    return Interval(number, number, False, whole)


def hull(parts: Iterable[Interval]) -> Interval:
    """Return the convex hull of several intervals; for none, that of zero."""
    held = list(parts)
    if not held:
        return Interval(0, 0, False, True)
    return Interval(
        min(one.low for one in held),
        max(one.high for one in held),
        any(one.nan for one in held),
        all(one.whole for one in held),
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """The effects of an element type on numbers: rounding, overflow, wrapping.

    Attributes:
        slack: the relative error of rounding and of a library's functions.
        tiny: some engines flush numbers below it to zero.
        bits: bits of a float's mantissa.
        low, high: the minimum and maximum; numbers beyond become infinite, or wrap around.
    """

    is_float: bool
    slack: float
    tiny: float
    low: Number
    high: Number
    bits: int = 0

    def number(self, number: Number) -> Interval:
        """Return the interval of a number after it is stored in this element type."""
        found = of_number(number)
        return found if not self.is_float or self._has(number) else self.held(found)

    def _has(self, number: Number) -> bool:
        """Whether this element type can represent a number exactly."""
        number = float(number)
        if number in (0.0, inf, -inf) or _is_short(number):
            return True
        mantissa, _ = frexp(number)
        is_normal = self.tiny <= abs(number) <= self.high
        return is_normal and (mantissa * 2.0**self.bits).is_integer()

    def rounded(self, x: Interval) -> Interval:
        """Return the interval of floats of another type after rounding to the nearest float of this
        type.
        """
        low = x.low if self._has(x.low) else self._out(x.low, -1)
        high = x.high if self._has(x.high) else self._out(x.high, 1)
        return Interval(low, high, x.nan, x.whole)

    def held(self, found: Interval) -> Interval:
        """Return the interval of a result in this element type, from the interval of its real
        numbers.
        """
        if not self.is_float:
            fits = self.low <= found.low and found.high <= self.high and not found.nan
            whole = found.whole and isinstance(found.low, int) and isinstance(found.high, int)
            return found if fits and whole else Interval(self.low, self.high, False, True)
        low, high = self._out(found.low, -1), self._out(found.high, 1)
        return Interval(low, high, found.nan, found.whole)

    def _out(self, end: Number, sign: int) -> Number:
        """Round an end of an interval outwards by the rounding error of this type; do not change an
        end that every float type represents exactly.
        """
        if isinstance(end, Fraction):
            end = float(end)
        if end in (0, inf, -inf):
            return end
        if not _is_short(end):
            outwards = (end > 0) == (sign > 0)
            end = end * (1 + self.slack if outwards else 1 - self.slack)
        if abs(end) < self.tiny and (end > 0) != (sign > 0):
            return 0.0  # It may be flushed to zero when read or written.
        if end > self.high:
            return inf if sign > 0 else self.high
        if end < self.low:
            return -inf if sign < 0 else self.low
        return end


def _is_short(end: Number) -> bool:
    """Whether all float types represent a number exactly: eight bits, of moderate magnitude."""
    if not 1e-4 < abs(end) < 6e4:
        return False
    mantissa, _ = frexp(end)
    return (mantissa * 256).is_integer()


SLACK = 2.0**-20
"""More than the error of a float32's rounding, and of libraries' functions."""
LEAST_EPSILON = 1e-30
"""A number that no engine flushes to zero; squares that are flushed are negligible against it."""


@once_each
def kind_of(type_: Attribute) -> Kind | None:
    """Return the kind of an element type; None for an unknown one."""
    if isinstance(type_, IntegerType):
        width = type_.width.data
        if width == 1:
            return Kind(False, 0, 0, 0, 1)
        if type_.signedness.data == Signedness.UNSIGNED:
            return Kind(False, 0, 0, 0, (1 << width) - 1)
        return Kind(False, 0, 0, -(1 << width - 1), (1 << width - 1) - 1)
    match type_:
        case Float16Type():
            return Kind(True, 2.0**-9, 2.0**-14, -65504.0, 65504.0, 11)
        case BFloat16Type():
            return Kind(True, 2.0**-6, 2.0**-126, -_WIDEST, _WIDEST, 8)
        case Float64Type():
            return Kind(True, SLACK, 2.0**-126, -inf, inf, 53)
        case _ if is_float(type_):
            return Kind(True, SLACK, 2.0**-126, -_LARGEST, _LARGEST, 24)
        case _:
            return None


_WIDEST = (2 - 2.0**-7) * 2.0**127
_LARGEST = (2 - 2.0**-23) * 2.0**127


def below(number: Number) -> Number:
    """Return the largest integer that is at most a number."""
    return number if number in (inf, -inf) else floor(number)


def above(number: Number) -> Number:
    """Return the smallest integer that is at least a number."""
    return number if number in (inf, -inf) else ceil(number)
