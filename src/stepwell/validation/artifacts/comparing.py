"""Compare the results of two calls, up to what rounding explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from stepwell.validation.compare import deviation
from stepwell.validation.rounding import MARGIN

LEAST = 1e-5
"""The difference of floats that is always allowed, relative to the largest number of a result."""
DOUBLE = 1e-12
"""The same for doubles."""
ENOUGH = 4
"""The number of calls in which the effect of rounding is measured."""


@dataclass
class Allowed:
    """The differences that rounding explains, measured on demand.

    Attributes:
        noisy: returns the results of the source with noise in every float.
    """

    noisy: Callable[[], list[tuple[Any, ...]]]
    shares: list[float] = field(default_factory=list[float])
    """The relative differences that were allowed in other calls; of `ENOUGH`, the largest holds."""

    @cached_property
    def _noisy(self) -> list[tuple[Any, ...]]:
        return self.noisy()

    def of(self, at: int, exact: torch.Tensor) -> float:
        """Return the allowed difference of a result, relative to its largest number."""
        if len(self.shares) >= ENOUGH:
            return max(self.shares)
        moved = [deviation(exact, one[at]) for one in self._noisy]
        self.shares.append(max(least(exact), MARGIN * max(moved, default=0.0)))
        return self.shares[-1]

    def may_change(self, at: int, exact: torch.Tensor) -> bool:
        """Whether noise changes any number of a result that is not a float."""
        return any(not torch.equal(exact, one[at]) for one in self._noisy)


def least(exact: torch.Tensor) -> float:
    """Return the relative difference of a result that is always allowed."""
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


def _result_differs(at: int, one: Any, other: Any, allowed: Allowed) -> str | None:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        same = one == other or (one != one and other != other)
        return None if same else f"result {at} is {other!r}, not {one!r}"
    if one.shape != other.shape:
        return f"result {at} has shape {list(other.shape)}, not {list(one.shape)}"
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.dtype.is_floating_point:
        wrong = one != other
        if not bool(wrong.any()) or allowed.may_change(at, one):
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
    if moved <= least(one) or moved <= (share := allowed.of(at, one)):
        return None
    largest = float(a[finite].abs().max())
    return (
        f"result {at} differs by {moved * largest:.2g} where its largest number is {largest:.2g}; "
        f"rounding explains {share * largest:.1g}"
    )
