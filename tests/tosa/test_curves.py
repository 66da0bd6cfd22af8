"""Functions that TOSA lacks are within a few ulp; those whose tails it would lose, within 1e-6."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor
from torch.nn import functional as F

from stepwell.translate.lowerings.tosa import curves

from .graphs import lowered

HALVES = {torch.float32: "tosa-1.0+fp", torch.float16: "tosa-1.0+fp",
          torch.bfloat16: "tosa-1.0+fp+bf16"}  # fmt: skip

BOUNDS = {
    "acos": 3,
    "acosh": 4,
    "asin": 3,
    "asinh": 4,
    "atan": 2,
    "atanh": 3,
    "cosh": 3,
    "erfc": 5,
    "sinh": 3,
}
"""Units in the last place, of the exact value, that results are off by at most."""


def every_kind_of_float() -> Tensor:
    """Bit patterns 2^20 apart, subnormal ones to NaN, and neighborhoods of where forms change."""
    patterns = torch.arange(0, 2**32, 2**20 - 1).sub(2**31).to(torch.int32).view(torch.float32)
    sizes = torch.tensor([2**-13, 0.1, 0.5, 1.0, 2.0, 10.4, 88.5, 89.3, 2.0**13])
    near = (sizes[:, None] * (1 + torch.arange(-90, 91) * 2.0**-23)).flatten()
    spread = torch.linspace(0, 12, 3001)
    inf = torch.tensor([torch.inf, 0.0, 1e-45, 3.4e38])
    return torch.cat([patterns, near, -near, spread, -spread, inf, -inf])


def ulps(found: Tensor, exact: Tensor) -> Tensor:
    """How far results are off, in units of the exact value's last place; NaN and inf must agree."""
    nearest = exact.float()
    assert torch.equal(found.isnan(), nearest.isnan())
    assert torch.equal(found.signbit()[~found.isnan()], nearest.signbit()[~found.isnan()])
    whole = nearest.isfinite() & found.isfinite()
    # Next to the largest number a result may be inf, one unit further.
    assert bool((nearest[~whole & ~found.isnan()].abs() >= 3.4028e38).all())
    _, exponent = torch.frexp(exact[whole])
    unit = torch.ldexp(torch.ones_like(exact[whole]), exponent.clamp(min=-125) - 24)
    return (found[whole].double() - exact[whole]).abs() / unit


def run(names: Iterable[str], x: Tensor, *others: Tensor) -> dict[str, Tensor]:
    """Results of the reference model; the interpreter has the same bits."""
    low = lowered({n: getattr(torch, n) for n in names}, x, *others, target=HALVES[x.dtype])
    found, own = low.run(x, *others), low.program.run(x, *others)
    for one, other in zip(found, own, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    return dict(zip(names, found, strict=True))


def test_every_curve_is_within_its_bound_over_all_floats() -> None:
    x = every_kind_of_float()
    found = run(BOUNDS, x)
    worst = {n: float(ulps(found[n], getattr(torch, n)(x.double())).max()) for n in BOUNDS}
    assert all(worst[name] <= bound for name, bound in BOUNDS.items()), worst


def test_an_angle_of_two_coordinates_is_within_three_ulp_in_every_octant() -> None:
    edges = [0.0, 1e-45, 1e-30, 0.5, 1, 3, 1e25, 3e38, torch.inf]
    near = torch.cat([torch.tensor(edges), torch.linspace(0.9, 1.1, 9)])
    side = torch.cat([near, -near, torch.tensor([torch.nan])])
    y, x = (part.flatten() for part in torch.meshgrid(side, side, indexing="ij"))
    found = run(["atan2"], y, x)["atan2"]
    assert float(ulps(found, torch.atan2(y.double(), x.double())).max()) <= 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_curves_of_halves_are_rounded_once(dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, 7).to(torch.int16).view(dtype)
    for name, found in run(BOUNDS, x).items():
        exact = getattr(torch, name)(x.double())
        torch.testing.assert_close(
            found.double(),
            exact.to(dtype).double(),
            rtol=torch.finfo(dtype).eps,
            atol=2.0**-24 if dtype == torch.float16 else 2.0**-133,
            equal_nan=True,
        )


def odd(name: str) -> Callable[[Tensor], Tensor]:
    """`h` of `f(x) = x + x z h(z)` with `z = x²`."""
    return lambda z: (getattr(torch, name)(z.sqrt()) / z.sqrt() - 1) / z


FITTED: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "ATAN": (odd("atan"), 0, 1),
    "ASIN": (odd("asin"), 0, 0.25),
    "ASINH": (odd("asinh"), 0, 1),
    "ATANH": (odd("atanh"), 0, 0.25),
    "SINH": (odd("sinh"), 0, 1),
    # acosh(1 + t) is 2 asinh(√(t/2)).
    "ACOSH": (lambda z: 2 * torch.asinh((z / 2).sqrt()) / (2 * z).sqrt(), 0, 1),
    "ERFC": (lambda z: torch.special.erfcx(2 * (1 / z - 1)), 1 / 6.2, 0.8),
}


@pytest.mark.parametrize("name", FITTED)
def test_coefficients_interpolate_the_function_at_chebyshev_nodes(name: str) -> None:
    function, low, high = FITTED[name]
    given = getattr(curves, name)

    def at(z: np.ndarray) -> np.ndarray:
        return function(torch.from_numpy(z).double()).numpy()

    fit = Chebyshev.interpolate(at, len(given) - 1, domain=[low, high])
    z = np.linspace(low + 1e-3, high, 100)
    assert np.abs(Polynomial(given)(z) - fit(z)).max() < 3e-9


SIZES = torch.cat([torch.logspace(-30, 2, 2000), torch.linspace(0.01, 100, 2000)])
BOTH = torch.cat([SIZES, -SIZES])
CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "elu of another alpha": lambda x: F.elu(x, 0.3),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.7),
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
}
LEAST = {"mish": 1e-36}
"""Where a result is normal and e ** x is not, eager's mish is off by 1e-5 too, and ours by 5e-6."""


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_right_to_a_millionth_of_itself(name: str) -> None:
    x = BOTH if name != "log1p" else torch.cat([SIZES, -SIZES[SIZES < 0.999]])
    (result,) = lowered(CURVES[name], x).run(x)
    exact = CURVES[name](x.double())
    limits = torch.finfo(torch.float32)
    normal = exact.abs() >= LEAST.get(name, limits.smallest_normal)
    normal &= exact.abs() <= limits.max
    error = ((result.double() - exact).abs() / exact.abs())[normal]
    assert float(error.max()) <= 1e-6
