"""Orthogonal polynomials of a degree that is a tensor: the four kinds of Chebyshev polynomials.

`T`, `U`, `V`, `W` of degree n are cosines and sines of multiples of `acos x`, and for |x| > 1
hyperbolic functions of multiples of `acosh |x|`. Legendre, Laguerre and Hermite polynomials have no
such closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def chebyshev(x: Tensor, n: Tensor | float, *, kind: str, is_shifted: bool) -> Any:
    """Return a polynomial of degree n; zero for degrees below 0."""
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    x = 2 * x - 1 if is_shifted else x
    if not isinstance(n, torch.Tensor) and n <= LARGEST_DEGREE:  # As in PyTorch.
        return by_recurrence(x, n, first=FIRST[kind], step=lambda x, n, p, q: 2 * x * p - q)
    degree = n.to(x.dtype) if isinstance(n, torch.Tensor) else torch.full_like(x, n)
    x, degree = torch.broadcast_tensors(x, torch.trunc(degree))
    size = x.abs()
    made = torch.where(
        torch.gt(size, 1), _hyperbolic(size, x, degree, kind), _circular(x, degree, kind)
    )
    made = torch.where(torch.eq(degree, 0), torch.ones_like(made), made)
    is_nan = torch.logical_or(
        torch.logical_and(torch.isnan(x), torch.gt(degree, 0)),
        torch.logical_and(torch.isinf(x), torch.gt(degree, 2)),  # PyTorch subtracts infinities.
    )
    made = torch.where(is_nan, torch.full_like(made, math.nan), made)
    return torch.where(torch.lt(degree, 0), torch.zeros_like(made), made)


def _circular(x: Tensor, n: Tensor, kind: str) -> Tensor:
    """Compute a polynomial for |x| ≤ 1: cos nθ, sin (n + 1)θ / sin θ, or quotients in half
    angles.
    """
    theta = torch.acos(torch.clamp(x, -1, 1))
    sign = 1 - 2 * torch.abs(torch.remainder(n, 2.0))
    if kind == "t":
        made, at_one, at_minus = torch.cos(n * theta), torch.ones_like(n), sign
    elif kind == "u":
        made = torch.sin((n + 1) * theta) / torch.sin(theta)
        at_one, at_minus = n + 1, (n + 1) * sign
    elif kind == "v":
        made = torch.cos((n + 0.5) * theta) / torch.cos(theta / 2)
        at_one, at_minus = torch.ones_like(n), (2 * n + 1) * sign
    else:
        made = torch.sin((n + 0.5) * theta) / torch.sin(theta / 2)
        at_one, at_minus = 2 * n + 1, sign
    made = torch.where(torch.eq(x, 1), at_one, made)
    return torch.where(torch.eq(x, -1), at_minus, made)


def _hyperbolic(size: Tensor, x: Tensor, n: Tensor, kind: str) -> Tensor:
    """Compute a polynomial for |x| > 1 from |x|; odd degrees change the sign.

    `V` and `W` are exchanged for negative x. Both parts of a quotient may overflow, so the factor
    `e ** nη` is separated.
    """
    eta = torch.acosh(torch.clamp(size, min=1))
    is_negative = torch.lt(x, 0)
    sign = torch.where(is_negative, 1 - 2 * torch.abs(torch.remainder(n, 2.0)), torch.ones_like(n))
    if kind == "t":
        return sign * torch.cosh(n * eta)
    root = torch.exp(n * eta / 2)  # XNNPACK's exponential overflows from 88.38 on.
    if kind == "u":
        share = torch.expm1(-2 * (n + 1) * eta) / torch.expm1(-2 * eta)
        return sign * root * (root * share)
    rest = -(2 * n + 1) * eta
    even = root * (root * (torch.exp(rest) + 1) / (torch.exp(-eta) + 1))
    odd = root * (root * torch.expm1(rest) / torch.expm1(-eta))
    one, other = (even, odd) if kind == "v" else (odd, even)
    return sign * torch.where(is_negative, other, one)


STEPS = "it takes as many steps as its data say"
"""The refusal of a recurrence or series whose length is known only at run time."""


def without_end(*_: Any, **__: Any) -> Any:
    """Refuse a series that is summed until it no longer changes.

    Raises:
        NotImplementedError: always; the text is the reason for the refusal.
    """
    raise NotImplementedError(STEPS)


def by_recurrence(x: Tensor, n: Tensor | float, *, first: Step, step: Step) -> Any:
    """Compute a polynomial of constant degree by its three-term recurrence.

    Raises:
        NotImplementedError: the degree is dynamic or too large.
    """
    if isinstance(n, torch.Tensor) or n > LARGEST_DEGREE:
        raise NotImplementedError(STEPS)
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    before, last = torch.ones_like(x), first(x, 0, x, x)
    if n < 1:
        return before if n >= 0 else torch.zeros_like(x)
    for degree in range(1, int(n)):
        before, last = last, step(x, degree, last, before)
    return last


LARGEST_DEGREE = 64
"""The largest degree; a larger one would take many products."""

Step = Callable[[Tensor, int, Tensor, Tensor], Tensor]
"""(x, n, P[n], P[n - 1]) → P[n + 1]."""

FIRST: dict[str, Step] = {
    "t": lambda x, n, p, q: x, "u": lambda x, n, p, q: 2 * x,
    "v": lambda x, n, p, q: 2 * x - 1, "w": lambda x, n, p, q: 2 * x + 1,
}  # fmt: skip
"""The Chebyshev polynomials of degree 1."""

RECURRENCES: dict[str, tuple[Step, Step]] = {
    "legendre_polynomial_p": (
        lambda x, n, p, q: x,
        lambda x, n, p, q: ((2 * n + 1) * x * p - n * q) / (n + 1),
    ),
    "laguerre_polynomial_l": (
        lambda x, n, p, q: 1 - x,
        lambda x, n, p, q: ((2 * n + 1 - x) * p - n * q) / (n + 1),
    ),
    "hermite_polynomial_h": (
        lambda x, n, p, q: 2 * x,
        lambda x, n, p, q: 2 * x * p - 2 * n * q,
    ),
    "hermite_polynomial_he": (
        lambda x, n, p, q: x,
        lambda x, n, p, q: x * p - n * q,
    ),
}

POLYNOMIALS: dict[Any, Callable[..., Any]] = {
    overload: partial(chebyshev, kind=kind, is_shifted=is_shifted)
    for kind in "tuvw"
    for is_shifted in (False, True)
    for packet in (
        getattr(
            aten,
            f"special_{'shifted_' if is_shifted else ''}chebyshev_polynomial_{kind}",
        ),
    )
    for overload in (packet.default, packet.n_scalar)
}
"""Operator → its decomposition."""

for _name, (_first, _step) in RECURRENCES.items():
    _packet = getattr(aten, f"special_{_name}")
    for _overload in (_packet.default, _packet.n_scalar):
        POLYNOMIALS[_overload] = partial(by_recurrence, first=_first, step=_step)
POLYNOMIALS.update(
    dict.fromkeys(
        (
            aten.special_zeta.default,
            aten.igamma.default,
            aten.igammac.default,
            torch.ops.prims.igamma.default,
            torch.ops.prims.igammac.default,
            torch.ops.prims.zeta.default,
        ),
        without_end,
    )
)
