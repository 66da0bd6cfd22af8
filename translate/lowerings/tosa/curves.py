"""Inverse trigonometric and hyperbolic functions and erfc, in f32, within a few ulp everywhere.

Each function is a polynomial near zero, where its closed form would cancel, and a closed form of
EXP, LOG and roots elsewhere. The coefficients are our own: interpolation at Chebyshev nodes in
double precision, which `tests/tosa/test_curves.py` repeats. Halves are computed in f32 between
casts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log as logarithm
from math import pi
from typing import Any

from stepwell.ir.declared.bounds import roundings
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.powers import root
from stepwell.translate.lowerings.tosa.values import (
    Value,
    erf,
    exp,
    log,
    maximum,
    minimum,
    needs_floats,
    reciprocal,
    where,
)

NAN = float("nan")

# f(x) = x + x z h(z) with z = x², on |x| <= 1, for asin and atanh on |x| <= 1/2.
ATAN = (
    *(-0.333333333, 0.199999903, -0.14285318, 0.111047068, -0.0903674232, 0.0741749689),
    *(-0.0576071593, 0.0383274439, -0.0192610796, 0.00620725376, -0.000936299322),
)
ASIN = (
    *(0.166666667, 0.074999924, 0.0446476638, 0.0302691393),
    *(0.0236118137, 0.0105744256, 0.0309745284),
)
ASINH = (
    *(-0.166666666, 0.0749999028, -0.0446395814, 0.0303382816, -0.0220692439),
    *(0.0161022092, -0.0106408076, 0.00553051403, -0.00188384545, 0.000302824276),
)
ATANH = (
    *(0.333333333, 0.200000034, 0.142854311, 0.111200122),
    *(0.0895509841, 0.087966107, 0.0186787083, 0.157995321),
)
SINH = (0.166666666, 0.00833333968, 0.00019838102, 2.80628025e-06)
# acosh(1 + t) = √(2t) h(t) on 0 <= t <= 1.
ACOSH = (
    *(1.0, -0.083333292, 0.0187491175, -0.00557306958),
    *(0.00186866506, -0.000628628778, 0.000173390448, -2.63231041e-05),
)
# erfc(x) = e ** -x² h(1 / (1 + x/2)) on 1/2 <= x <= 10.4.
ERFC = (
    *(2.05657396e-07, 0.282089833, 0.282133428, 0.246871598, 0.173455006, 0.107632348),
    *(-0.113177614, 0.255663495, -0.63155432, 0.648378246, -0.31074277, 0.0592544844),
)

LARGE = 2.0**13
"""From here on x² + 1 and x² - 1 equal x² in f32, and asinh and acosh equal log(2x)."""


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    *lower, last = coefficients
    y = x * last
    for number in reversed(lower[1:]):
        y = (y + number) * x
    return y + lower[0]


def _odd(w: Value, z: Value, coefficients: Sequence[float]) -> Value:
    """Return the odd function `w + w z h(z)`, exactly w for tiny w, and -0 for -0."""
    tail = w * z * _polynomial(z, coefficients)
    y = w + tail
    # For -0 the tail would be +0, and so would their sum.
    return where(w.equals(0.0), w, y) if coefficients[0] < 0 else y


def _signed(size: Value, like: Value) -> Value:
    """Return `size` with the sign of `like`, which is nonzero where the sign matters."""
    return where(like < 0.0, -size, size)


def _halves(x: Value) -> tuple[Value, Value]:
    """Return `e ** |x| / 2` and `e ** -|x| / 2`, by powers of e ** |x/2|, which cannot overflow."""
    power = exp(abs(x) * 0.5)
    share = reciprocal(power)
    grown = power * 0.5 * power
    return grown, share * 0.5 * share


def _cosh(x: Value) -> Value:
    grown, shrunk = _halves(x)
    return grown + shrunk


def _sinh(x: Value) -> Value:
    grown, shrunk = _halves(x)
    far = _signed(grown - shrunk, x)
    near = _odd(x, x * x, SINH)
    return where(abs(x) > 1.0, far, near)


def _atan(x: Value) -> Value:
    """Return atan, for |x| > 1 as π/2 minus the angle of 1/x."""
    is_far = abs(x) > 1.0
    w = where(is_far, reciprocal(x), x)
    angle = _odd(w, w * w, ATAN)
    quarter = where(x > 0.0, x.like(pi / 2), -pi / 2)
    return where(is_far, quarter - angle, angle)


def _arc(x: Value) -> tuple[Value, Value]:
    """Return whether |x| > 1/2, and the asin of √((1 - |x|) / 2) if so, else of x."""
    size = abs(x)
    is_far = size > 0.5
    rest = (1.0 - size) * 0.5
    z = where(is_far, rest, x * x)
    w = where(is_far, root(rest), x)
    return is_far, _odd(w, z, ASIN)


def _asin(x: Value) -> Value:
    is_far, arc = _arc(x)
    far = x.like(pi / 2) - arc * 2.0
    return where(is_far, _signed(far, x), arc)


def _acos(x: Value) -> Value:
    is_far, arc = _arc(x)
    twice = arc * 2.0
    left = pi - twice
    far = where(x < 0.0, left, twice)
    return where(is_far, far, pi / 2 - arc)


def _log_of_sum(size: Value, square: Value) -> Value:
    """Return `log(size + √square)`, and `log(2 size)` from `LARGE` on."""
    whole = log(size + root(square))
    twice = log(size) + logarithm(2)
    return where(size > LARGE, twice, whole)


def _asinh(x: Value) -> Value:
    size, square = abs(x), x * x
    far = _signed(_log_of_sum(size, square + 1.0), x)
    return where(size > 1.0, far, _odd(x, square, ASINH))


def _acosh(x: Value) -> Value:
    far = _log_of_sum(x, x * x - 1.0)
    rest = x - 1.0
    height = root(rest * 2.0)
    near = height * _polynomial(rest, ACOSH)
    y = where(x > 2.0, far, near)
    return where(x < 1.0, NAN, y)


def _atanh(x: Value) -> Value:
    size = abs(x)
    below = reciprocal(1.0 - size)
    share = (size + 1.0) * below
    far = _signed(log(share) * 0.5, x)
    far = where(size > 1.0, NAN, far)
    return where(size > 0.5, far, _odd(x, x * x, ATANH))


def _erfc(x: Value) -> Value:
    """Return erfc: `1 - erf` below 1/2, else `e ** -x²` times h, with x split for accuracy."""
    near = x.like(1.0) - erf(x)
    kept = minimum(maximum(x, 0.0), 11.0)
    shift = 1.5 * 2.0**19
    coarse = kept + shift - shift
    rest = coarse - kept
    fine = exp(rest * (kept + coarse))
    power = exp(-(coarse * coarse))
    share = reciprocal(kept * 0.5 + 1.0)
    far = fine * _polynomial(share, ERFC) * power
    return where(x > 0.5, far, near)


def _is_below_zero(x: Value) -> Value:
    """Return whether the sign bit is set, also for -0, whose reciprocal is -inf."""
    return (x < 0.0) | (reciprocal(x) < 0.0)


CURVES: dict[str, Callable[[Value], Value]] = {
    "aten.cosh.default": _cosh,
    "aten.acos.default": _acos,
    "aten.acosh.default": _acosh,
    "aten.asin.default": _asin,
    "aten.asinh.default": _asinh,
    "aten.atan.default": _atan,
    "aten.atanh.default": _atanh,
    "aten.erfc.default": _erfc,
    "aten.sinh.default": _sinh,
}
FEW_ULP = roundings("polynomials and closed forms, within a few ulp")


@lowers(CURVES, to="tosa", bound=FEW_ULP)
def curve(x: Value, *, form: Any, op: Any) -> Value:
    """Lower the functions in `CURVES` to TOSA operators in f32."""
    needs_floats(op, x)
    return form(x.single()).cast(x.dtype)


@lowers("aten.atan2.default", to="tosa", bound=FEW_ULP)
def angle(y: Value, x: Value, *, op: Any, out: Out) -> Value:
    """Lower `atan2`: the angle of the shorter side over the longer one, moved to its octant."""
    if len({y.dtype, x.dtype, out.dtype}) > 1:
        refuse("operands and result have several dtypes")
    needs_floats(op, y)
    y, x = y.single(), x.single()
    rank = max(x.rank, y.rank)
    x, y = x.of_rank(rank), y.of_rank(rank)
    wide, high = abs(x), abs(y)
    most, least = maximum(wide, high), minimum(wide, high)
    # The reciprocal of a side beyond 2 ** 126, or of a subnormal one, would lose bits.
    scale = where(most < 2.0**-64, most.like(2.0**64), 1.0)
    scale = where(most > 2.0**64, 2.0**-64, scale)
    most, least = most * scale, least * scale
    share = least * reciprocal(most)
    is_one = minimum(most, 1.0)  # Define 0 / 0 as 0 and inf / inf as 1.
    is_one = where(is_one > 0.0, 1.0, is_one)
    share = where(most.equals(least), is_one, share)
    turn = _odd(share, share * share, ATAN)
    steep = pi / 2 - turn
    turn = where(high > wide, steep, turn)
    turned = pi - turn
    turn = where(_is_below_zero(x), turned, turn)
    return where(_is_below_zero(y), -turn, turn).cast(out.dtype)


RULES = lowerings_of(__name__)
