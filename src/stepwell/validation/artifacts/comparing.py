"""Compare the results of two calls, up to what rounding explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.validation.compare import deviation
from stepwell.validation.rounding import MARGIN

LEAST = 1e-5
"""The difference of floats that is always allowed, relative to the largest number of a result."""
DOUBLE = 1e-12
"""The same for doubles."""


@dataclass
class Allowed:
    """The differences that rounding explains, measured on demand.

    Attributes:
        noisy: returns the results of the source with noise in every float.
    """

    noisy: Callable[[], list[tuple[Any, ...]]]

    @cached_property
    def _noisy(self) -> list[tuple[Any, ...]]:
        return self.noisy()

    def of(self, at: int, exact: Any) -> float:
        """Return the allowed difference of a result, relative to its largest number."""
        moved = [deviation(real(exact), real(one[at])) for one in self._noisy]
        return max(least(exact), MARGIN * max(moved, default=0.0))

    def moved(self, at: int, exact: torch.Tensor) -> torch.Tensor:
        """Return which numbers of a result that is not a float are changed by noise."""
        changed = torch.zeros_like(exact, dtype=torch.bool)
        for one in self._noisy:
            changed |= one[at] != exact
        return changed


def real(value: Any) -> Any:
    """Return the real and imaginary parts of complex numbers, and any other value as it is."""
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    return torch.view_as_real(value.resolve_conj()) if is_complex else value


def apart(one: Any, other: Any) -> float:
    """Return the Euclidean norm of the difference of two results, relative to the first one's."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return 0.0 if one == other else float("inf")
    a, b = real(one).double(), real(other).double()
    return float((a - b).norm() / a.norm().clamp(min=1e-30)) if a.shape == b.shape else float("inf")


def is_within(one: Any, other: Any, tolerance: float | None) -> bool:
    """Whether each number of a result is within a tolerance of the same one of another result.

    Args:
        one, other: the results.
        tolerance: of floats; None: the least one. Integers of 8 bits may differ by 1.
    """
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one == other
    a, b = real(one), real(other)
    if _kind(one) != _kind(other):
        return False
    if a.shape != b.shape or not a.is_floating_point():
        step = int(a.dtype in (torch.int8, torch.uint8))
        return a.shape == b.shape and bool(((a.long() - b.long()).abs() <= step).all())
    wide, found = a.double(), b.double()
    known = wide[wide.isfinite()]
    scale = float(known.abs().max()) if known.numel() else 0.0
    near = (wide - found).abs() <= (least(a) * scale if tolerance is None else tolerance)
    return bool((near | (wide == found) | (wide.isnan() & found.isnan())).all())


def least(exact: Any) -> float:
    """Return the relative difference of a result that is always allowed."""
    if not isinstance(exact, torch.Tensor):
        return LEAST
    if exact.dtype in (torch.float16, torch.bfloat16):
        return 4 * torch.finfo(exact.dtype).eps
    return DOUBLE if exact.dtype == torch.float64 else LEAST


def differs(exact: Sequence[Any], found: Sequence[Any], allowed: Allowed) -> str | None:
    """Return how results differ beyond rounding, or None."""
    if len(exact) != len(found):
        return f"{len(found)} results are returned, {len(exact)} expected"
    for at, (one, other) in enumerate(zip(exact, found, strict=True)):
        if (said := _result_differs(at, one, other, allowed)) is not None:
            return said
    return None


def _kind(value: torch.Tensor) -> tuple[bool, bool, bool]:
    """Return whether a tensor has floats, complex numbers or truth values."""
    return value.is_floating_point(), value.is_complex(), value.dtype == torch.bool


def _result_differs(at: int, one: Any, other: Any, allowed: Allowed) -> str | None:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return f"result {at} is {type(other).__name__}, not {type(one).__name__}"
        if isinstance(one, float) and isinstance(other, float):
            noisy = Allowed(lambda: [(torch.tensor([n[at]]),) for n in allowed.noisy()])
            said = _result_differs(0, torch.tensor([one]), torch.tensor([other]), noisy)
            return said and f"result {at} is {other!r}, not {one!r}"
        same = one == other or (one != one and other != other)
        return None if same else f"result {at} is {other!r}, not {one!r}"
    if one.shape != other.shape:
        return f"result {at} has shape {list(other.shape)}, not {list(one.shape)}"
    if _kind(one) != _kind(other):
        return f"result {at} has numbers of {other.dtype}, not {one.dtype}"
    if not one.numel():
        return None
    whole, one, other = one, real(one), real(other)
    if not one.dtype.is_floating_point:
        wrong = one != other
        wrong = wrong & ~allowed.moved(at, one) if bool(wrong.any()) else wrong
        if not bool(wrong.any()):
            return None
        place = tuple(wrong.nonzero()[0].tolist())
        return (
            f"result {at} differs in {int(wrong.sum())} of {one.numel()} numbers; at "
            f"{list(place)} it is {other[place].item()}, not {one[place].item()}"
        )
    a, b = one.double(), other.double()
    finite = a.isfinite() & b.isfinite()
    special = ~finite & (a != b) & ~(a.isnan() & b.isnan())
    if bool(special.any()):
        place = tuple(special.nonzero()[0].tolist())
        return f"result {at} is {b[place].item():g} at {list(place)}, not {a[place].item():g}"
    moved = deviation(one, other)
    if moved <= least(whole) or moved <= (share := allowed.of(at, whole)):
        return None
    largest = float(a[finite].abs().max())
    return (
        f"result {at} differs by {moved * largest:.2g} where its largest number is {largest:.2g}; "
        f"rounding explains {share * largest:.1g}"
    )
