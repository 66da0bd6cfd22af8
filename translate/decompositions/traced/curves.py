"""Special functions as polynomials and closed forms.

Each polynomial is a Chebyshev series on an interval. PyTorch's own kernel is evaluated in double
precision at the nodes; the series ends where further terms are below the element type's precision.
Closed forms are used where a function grows without bound, oscillates or is mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import disable_current_modes
from stepwell.translate.decompositions.traced.arithmetic import in_single

aten, prims = torch.ops.aten, torch.ops.prims
special = torch.special

NODES = 48
"""Number of nodes of an interpolation; its last terms are rounding errors only."""


@dataclass(frozen=True)
class Series:
    """A Chebyshev series that approximates a function on an interval."""

    function: Callable[[Tensor], Tensor]
    low: float
    high: float

    @cached_property
    def terms(self) -> tuple[float, ...]:
        """Return the coefficients, interpolated in double precision; plain numbers even while
        tracing.
        """
        with disable_current_modes():
            turn = (torch.arange(NODES, dtype=torch.float64) + 0.5) * (math.pi / NODES)
            values = self.function(
                (torch.cos(turn) * (self.high - self.low) + (self.high + self.low)) / 2
            )
            orders = torch.arange(NODES, dtype=torch.float64)
            terms = (torch.cos(orders[:, None] * turn) @ values) * (2 / NODES)
            terms[0] /= 2
            return tuple(terms.tolist())

    def __call__(self, x: Tensor) -> Tensor:
        """Sum the series by Clenshaw's recurrence; x is clamped to the interval."""
        small = torch.finfo(x.dtype).eps / 8 * max(map(abs, self.terms))
        count = max(at for at, term in enumerate(self.terms) if abs(term) > small) + 1
        middle, share = (self.high + self.low) / 2, 2 / (self.high - self.low)
        u = torch.clamp((x - middle) * share, -1, 1)
        last, before = torch.full_like(u, self.terms[count - 1]), None
        for term in reversed(self.terms[1 : count - 1]):
            made = 2 * u * last + term
            last, before = made if before is None else made - before, last
        made = u * last + self.terms[0]
        return made if before is None else made - before


def full(x: Tensor, value: float) -> Tensor:
    """Return a tensor like x with every element equal to `value`."""
    return torch.full_like(x, value)


LOG_2, LOG_PI, HALF_LOG_TAU = math.log(2), math.log(math.pi), math.log(math.tau) / 2


def _lgamma_by_roots(x: Tensor) -> Tensor:
    """Return lgamma(x) / ((x - 1)(x - 2)): lgamma without its two roots."""
    d = x.double()
    return torch.lgamma(d) / ((d - 1) * (d - 2))


NEAR_GAMMA = Series(_lgamma_by_roots, 0.998, 3.0)
FAR_GAMMA = Series(torch.lgamma, 3.0, 9.0)


def sin_pi(x: Tensor) -> Tensor:
    """Return `|sin(πx)|`, computed from the distance to the nearest integer."""
    return torch.sin((x - torch.round(x)).abs() * math.pi)


def _lgamma_positive(x: Tensor) -> Tensor:
    near = torch.where(torch.lt(x, 1), x + 1, x)
    middle = (near - 1) * (near - 2) * NEAR_GAMMA(near)
    middle = torch.where(torch.lt(x, 1), middle - torch.log(x), middle)
    inverse = torch.reciprocal(x)
    square = inverse * inverse
    tail = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    far = (x - 0.5) * (torch.log(x) - 1) + (HALF_LOG_TAU - 0.5) + tail
    made = torch.where(torch.lt(x, 3), middle, FAR_GAMMA(x))
    return torch.where(torch.lt(x, 9), made, far)


@in_single
def lgamma(x: Tensor) -> Tensor:
    """Return lgamma by Stirling's series from 9 on; negative numbers by reflection."""
    size = torch.where(torch.lt(x, 0.5), 1 - x, x)
    made = _lgamma_positive(size)
    mirrored = LOG_PI - torch.log(sin_pi(x)) - made
    small = -torch.log(x.abs())
    made = torch.where(torch.lt(x, 0.5), mirrored, made)
    made = torch.where(torch.lt(x.abs(), 2.0**-24), small, made)
    is_endless = torch.logical_or(torch.isinf(x), torch.logical_and(torch.le(x, 0), _is_whole(x)))
    return torch.where(is_endless, full(x, math.inf), made)


def _is_whole(x: Tensor) -> Tensor:
    return torch.eq(torch.round(x), x)


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """Return the multivariate lgamma as a sum of lgammas, whose arguments are ½ apart."""
    total = torch.lgamma(x)
    for at in range(1, p):
        total = total + torch.lgamma(x - at / 2)
    return total + p * (p - 1) / 4 * LOG_PI


BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
SHIFT = 8
"""Recurrence steps, after which a series of inverse powers is accurate to the last digit."""


def _derivatives_of_cotangent(order: int) -> list[float]:
    """Return `dⁿ/dxⁿ cot(πx)` as a polynomial in cot(πx), constant term first."""
    terms = [0.0, 1.0]
    for _ in range(order):
        slopes = [at * term for at, term in enumerate(terms)][1:]
        made = [0.0] * (len(slopes) + 2)
        for at, slope in enumerate(slopes):
            made[at] -= math.pi * slope
            made[at + 2] -= math.pi * slope
        terms = made
    return terms


def _polygamma_positive(order: int, x: Tensor) -> Tensor:
    """Sum inverse powers and an Euler-Maclaurin series; for order 0, use the logarithm."""
    y = x + SHIFT
    inverse = torch.reciprocal(y)
    square = inverse * inverse
    series = full(x, 0)
    for at in reversed(range(len(BERNOULLI))):
        k = at + 1
        scale = math.factorial(2 * k + order - 1) / math.factorial(2 * k)
        series = square * (series + BERNOULLI[at] * scale)
    if order == 0:
        made = torch.log(y / 4) + 2 * LOG_2 - inverse / 2 - series  # AVX-512's log(3e38) is inf.
        for at in reversed(range(SHIFT)):
            made = made - torch.reciprocal(x + at)
        return made
    power = torch.pow(y, -order)
    made = power * (math.factorial(order - 1) + math.factorial(order) / 2 * inverse + series)
    for at in reversed(range(SHIFT)):
        made = made + math.factorial(order) * torch.pow(x + at, -order - 1)
    return made if order % 2 else -made


def polygamma(order: int, x: Tensor) -> Any:
    """Return a derivative of lgamma; negative numbers by reflection with the cotangent's."""
    if order > 20:
        return NotImplemented
    return in_single(partial(_polygamma, order))(x)


def _polygamma(order: int, x: Tensor) -> Tensor:
    is_below = torch.le(x, 0)
    positive = _polygamma_positive(order, torch.where(is_below, 1 - x, x))
    share = x - torch.round(x)
    cotangent = torch.cos(math.pi * share) / torch.sin(math.pi * share)
    terms = _derivatives_of_cotangent(order)
    slope = full(x, terms[-1])
    for term in reversed(terms[:-1]):
        slope = slope * cotangent + term
    mirrored = (-positive if order % 2 else positive) - math.pi * slope
    made = torch.where(is_below, mirrored, positive)
    is_pole = torch.logical_and(is_below, _is_whole(x))
    if order == 0:
        made = torch.where(is_pole, full(x, math.nan), made)
    is_tiny = torch.lt(x.abs(), torch.finfo(x.dtype).tiny)  # A delegate reads it as zero.
    pole = (-1) ** (order + 1) * math.factorial(order) * torch.pow(torch.reciprocal(x), order + 1)
    made = torch.where(is_tiny, pole, made)
    if order == 0:
        return torch.where(torch.eq(x, math.inf), x, made)
    made = torch.where(is_pole, full(x, math.inf if order % 2 else -math.inf), made)
    end = -math.inf if order == 1 else math.inf  # PyTorch's series of it is NaN.
    return torch.where(torch.eq(x, end), full(x, math.nan), made)


def digamma(x: Tensor) -> Any:
    """Return the derivative of lgamma."""
    return polygamma(0, x)


def _scaled_erfc(u: Tensor) -> Tensor:
    """Return erfcx(x) / u, where u = 1 / (1 + x / 2)."""
    x = (torch.reciprocal(u) - 1) * 2
    return special.erfcx(x) / u


ERFCX = Series(_scaled_erfc, 0.0, 1.0)


def _square_exp(x: Tensor, sign: int) -> Tensor:
    """Return `e ** ±x²`: the square of the leading bits is exact, and the remainder is small."""
    head = torch.round(x * 16) / 16
    return torch.exp(sign * head * head) * torch.exp(sign * (x - head) * (x + head))


def _erfcx_positive(x: Tensor) -> Tensor:
    u = torch.reciprocal(x / 2 + 1)
    return u * ERFCX(u)


@in_single
def erfcx(x: Tensor) -> Tensor:
    """Return `e ** x² erfc(x)`; negative x by reflection, which overflows below -9.4."""
    size = _erfcx_positive(x.abs())
    below = torch.clamp(x, -30, 0)
    return torch.where(torch.lt(x, 0), 2 * _square_exp(below, 1) - size, size)


@in_single
def erfc(x: Tensor) -> Tensor:
    """Return 1 - erf(x) near zero, and `e ** -x² · erfcx(x)` elsewhere."""
    size = torch.clamp(x.abs(), max=30)
    tail = _square_exp(size, -1) * _erfcx_positive(size)
    tail = torch.where(torch.lt(x, 0), 2 - tail, tail)
    return torch.where(torch.lt(x.abs(), 0.5), 1 - torch.erf(x), tail)


def _ends(w: Tensor) -> Tensor:
    """Return erfinv(y) / y for 1 - y² = e ** -w near 0, from the quantile of the small tail."""
    left = torch.exp(-w)
    p = left / (2 * (1 + torch.sqrt(1 - left)))
    return special.ndtri(p) / (math.sqrt(2) * (2 * p - 1))


NEAR_QUANTILE = Series(lambda w: _ends(w.clamp(min=1e-12)), 0.0, 6.0)
FAR_QUANTILE = Series(lambda root: _ends(root * root), math.sqrt(6), 10.5)


def _quantile(w: Tensor, y: Tensor) -> Tensor:
    root = torch.sqrt(torch.clamp(w, min=0))
    share = torch.where(torch.lt(w, 6), NEAR_QUANTILE(w), FAR_QUANTILE(root))
    return y * torch.where(torch.isinf(w), w, share)


@in_single
def erfinv(y: Tensor) -> Tensor:
    """Return erfinv by `-log(1 - y²)`; infinite at ±1, NaN beyond."""
    return _quantile(-torch.log((1 - y) * (1 + y)), y)


@in_single
def ndtri(p: Tensor) -> Tensor:
    """Return the quantile of the normal distribution, accurate for small probabilities too."""
    return math.sqrt(2) * _quantile(-torch.log(4 * p * (1 - p)), 2 * p - 1)


def _of_large(function: Callable[[Tensor], Tensor], start: float) -> Series:
    """Return a series of `√x f(x)` in the variable `start / x`, for large x."""
    return Series(lambda v: function(start / v) * torch.sqrt(start / v), 1e-9, 1.0)


def _slope_of(function: Callable[[Tensor], Tensor], end: float) -> Series:
    """Return a series of `f(x) / x` of an odd function on an interval that begins at zero."""

    def slope(tensor: Tensor) -> Tensor:
        x = tensor.clamp(min=1e-9)
        return function(x) / x

    return Series(slope, 0, end)


I_END, K_END, J_END = 8.0, 2.0, 5.0
I0E_NEAR, I0E_FAR = Series(special.i0e, 0, I_END), _of_large(special.i0e, I_END)
I1E_NEAR = _slope_of(special.i1e, I_END)
I1E_FAR = _of_large(special.i1e, I_END)


@in_single
def i0e(x: Tensor) -> Tensor:
    """Return `e ** -|x|` times the modified Bessel function of order 0."""
    size = x.abs()
    far = I0E_FAR(I_END / size) * torch.rsqrt(size)
    return torch.where(torch.le(size, I_END), I0E_NEAR(size), far)


@in_single
def i1e(x: Tensor) -> Tensor:
    """Return `e ** -|x|` times the modified Bessel function of order 1."""
    size = x.abs()
    far = I1E_FAR(I_END / size) * torch.rsqrt(size)
    far = torch.where(torch.lt(x, 0), -far, far)
    return torch.where(torch.le(size, I_END), x * I1E_NEAR(size), far)


def _grown(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Multiply by `e ** |x|` in two halves, because XNNPACK's exponential overflows from 88.38
    on.
    """

    def grown(x: Tensor) -> Tensor:
        root = torch.exp(x.abs() / 2)
        return root * (root * function(x))

    return in_single(grown)


def _k_rest(order: int) -> Series:
    """Return the smooth part of Bessel's K near zero, without its logarithm; for order 1, times
    x.
    """

    def rest(square: Tensor) -> Tensor:
        x = torch.sqrt(square.clamp(min=1e-18))
        if order:
            return x * (special.modified_bessel_k1(x) - torch.log(x / 2) * special.i1(x))
        return special.modified_bessel_k0(x) + torch.log(x / 2) * special.i0(x)

    return Series(rest, 0.0, K_END**2)


K_NEAR = (_k_rest(0), _k_rest(1))
K_FAR = (
    _of_large(special.scaled_modified_bessel_k0, K_END),
    _of_large(special.scaled_modified_bessel_k1, K_END),
)


def _finite_log(x: Tensor) -> Tensor:
    """Return a logarithm that is finite at zero, for a product with zero; denormals count as
    zero.
    """
    return torch.log(torch.clamp(x, min=torch.finfo(x.dtype).tiny))


def _bessel_k(x: Tensor, order: int, is_scaled: bool) -> Tensor:
    """Return modified Bessel functions of the second kind: infinite at 0, NaN for negative x."""
    near = torch.clamp(x, max=K_END)
    if order:
        small = (_finite_log(near) - LOG_2) * special.i1(near) + K_NEAR[1](near * near) / near
    else:
        small = K_NEAR[0](near * near) - (torch.log(near) - LOG_2) * special.i0(near)
    far = K_FAR[order](K_END / x) * torch.rsqrt(x)
    if is_scaled:
        small = small * torch.exp(near)
    else:
        far = far * torch.exp(-x)
    made = torch.where(torch.le(x, K_END), small, far)
    made = torch.where(torch.eq(x, 0), full(x, math.inf), made)
    made = torch.where(torch.eq(x, math.inf), full(x, 0), made)
    return torch.where(torch.lt(x, 0), full(x, math.nan), made)


J = (special.bessel_j0, special.bessel_j1)
Y = (special.bessel_y0, special.bessel_y1)


def _phased(order: int, is_even: bool) -> Series:
    """Return a series for Bessel's J and Y at large x: the slowly varying factor of the cosine (or,
    unless `is_even`, of the sine) of the phase.
    """

    def share(v: Tensor) -> Tensor:
        x = J_END / v
        phase = x - math.pi / 4 - order * math.pi / 2
        sine, cosine = torch.sin(phase), torch.cos(phase)
        j, y = J[order](x), Y[order](x)
        made = j * cosine + y * sine if is_even else y * cosine - j * sine
        return made * torch.sqrt(x * math.pi / 2) / (1 if is_even else v)

    return Series(share, 1e-3, 1.0)


PHASED = tuple((_phased(order, True), _phased(order, False)) for order in (0, 1))
J_NEAR = (
    Series(special.bessel_j0, 0, J_END),
    _slope_of(special.bessel_j1, J_END),
)


def _y_rest(order: int) -> Series:
    """Return the smooth part of Bessel's Y near zero, without logarithm and pole; for order 1, over
    x.
    """

    def rest(tensor: Tensor) -> Tensor:
        x = tensor.clamp(min=1e-4)
        if order:
            slope = torch.log(x) * special.bessel_j1(x) - torch.reciprocal(x)
            return (special.bessel_y1(x) - slope * (2 / math.pi)) / x
        return special.bessel_y0(x) - torch.log(x) * special.bessel_j0(x) * (2 / math.pi)

    return Series(rest, 0, J_END)


Y_NEAR = (_y_rest(0), _y_rest(1))


def _waves(x: Tensor, order: int, is_second: bool) -> Tensor:
    """Compute Bessel functions of large x: sine and cosine of x - π/4."""
    v = J_END / x
    even, odd = PHASED[order][0](v), v * PHASED[order][1](v)
    sine, cosine = torch.sin(x), torch.cos(x)
    one, other = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -sine - cosine)
    made = other * even + one * odd if is_second else one * even - other * odd
    return made * torch.rsqrt(x) * math.sqrt(1 / math.pi)


def _bessel_j(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    near = J_NEAR[order](size) * size if order else J_NEAR[order](size)
    made = torch.where(torch.le(size, J_END), near, _waves(size, order, False))
    return torch.where(torch.lt(x, 0), -made, made) if order else made


def _bessel_y(x: Tensor, order: int) -> Tensor:
    first = _bessel_j(x, order)
    if order:
        near = (_finite_log(x) * first - torch.reciprocal(x)) * (2 / math.pi) + Y_NEAR[1](x) * x
    else:
        near = torch.log(x) * first * (2 / math.pi) + Y_NEAR[0](x)
    made = torch.where(torch.le(x, J_END), near, _waves(x, order, True))
    made = torch.where(torch.eq(x, 0), full(x, -math.inf), made)
    return torch.where(torch.lt(x, 0), full(x, math.nan), made)


@in_single
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Return `sin(x) / x`, 0 for infinities."""
    return torch.where(torch.isinf(x), full(x, 0), _sine_by_x(x))


@in_single
def sinc(x: Tensor) -> Tensor:
    """Return `sin(πx) / πx`."""
    return _sine_by_x(x * math.pi)


def _sine_by_x(x: Tensor) -> Tensor:
    """Return `sin(x) / x`, accurate near zero, where `1 / x` may overflow."""
    is_near = torch.lt(x.abs(), 2.0**-13 if x.dtype == torch.float32 else 2.0**-28)
    return torch.where(is_near, full(x, 1), torch.sin(x) / x)


def _single(function: Callable[..., Tensor], **given: Any) -> Callable[[Tensor], Tensor]:
    return in_single(partial(function, **given))


CURVES: dict[Any, Callable[..., Any]] = {
    aten.lgamma.default: lgamma,
    prims.lgamma.default: lgamma,
    aten.mvlgamma.default: mvlgamma,
    aten.digamma.default: digamma,
    prims.digamma.default: digamma,
    aten.polygamma.default: polygamma,
    aten.special_polygamma.default: polygamma,
    aten.erfc.default: erfc,
    prims.erfc.default: erfc,
    aten.special_erfcx.default: erfcx,
    prims.erfcx.default: erfcx,
    aten.erfinv.default: erfinv,
    prims.erf_inv.default: erfinv,
    aten.special_ndtri.default: ndtri,
    prims.ndtri.default: ndtri,
    aten.i0.default: _grown(i0e),
    aten.special_i0e.default: i0e,
    prims.bessel_i0e.default: i0e,
    aten.special_i1.default: _grown(i1e),
    aten.special_i1e.default: i1e,
    prims.bessel_i1e.default: i1e,
    aten.special_modified_bessel_i0.default: _grown(i0e),
    aten.special_modified_bessel_i1.default: _grown(i1e),
    aten.special_modified_bessel_k0.default: _single(_bessel_k, order=0, is_scaled=False),
    aten.special_modified_bessel_k1.default: _single(_bessel_k, order=1, is_scaled=False),
    aten.special_scaled_modified_bessel_k0.default: _single(_bessel_k, order=0, is_scaled=True),
    aten.special_scaled_modified_bessel_k1.default: _single(_bessel_k, order=1, is_scaled=True),
    aten.special_bessel_j0.default: _single(_bessel_j, order=0),
    aten.special_bessel_j1.default: _single(_bessel_j, order=1),
    aten.special_bessel_y0.default: _single(_bessel_y, order=0),
    aten.special_bessel_y1.default: _single(_bessel_y, order=1),
    aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
    aten.sinc.default: sinc,
}
"""Operator → its decomposition."""
