"""The source positions of a resized axis, and RESIZE's parameters for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import gcd

from stepwell.ir.compat.torch.lazy_imports import torch

LARGEST_SCALE = 1 << 11
"""The largest numerator of RESIZE."""

LARGEST_RATIO = 256
"""MAX_SCALE of TOSA's level 8K."""

LARGEST_IMAGE = 16384
"""The largest axis that RESIZE takes."""


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of a resized image: its size, its new size, and the scale that the op states, if any.

    `mode` is `nearest`, `nearest-exact` or `linear`; `corners`: `align_corners` is set.
    """

    size: int
    wanted: int
    mode: str
    scale: float | None = None
    corners: bool = False

    def scale_is_its_own(self) -> bool:
        """Whether the old size times the resize's scale is the new size, up to one element; True
        if no scale is stated.
        """
        scale = self.scale
        if scale is None or not 0 < scale <= LARGEST_IMAGE:
            return scale is None
        return abs(self.size * scale - self.wanted) <= 1

    def places(self) -> torch.Tensor:
        """Return each new element's position on the old axis, `f64[wanted]`, as in torch."""
        return _places(self)

    def parameters(self) -> tuple[int, int, int, int] | None:
        """Return RESIZE's numerator, denominator, offset and border, or None if it has none."""
        found = _parameters(self)
        return found if self._is_right(found) else None

    def _is_right(self, found: tuple[int, int, int, int]) -> bool:
        up, down, offset, border = found
        if up > LARGEST_SCALE or up > LARGEST_RATIO * down or down >= 16 * up:
            return False
        if not -up <= offset < 16 * up or not -16 * up <= border < up:
            return False
        if max(self.size, self.wanted) > LARGEST_IMAGE:
            return False
        place = torch.arange(self.wanted) * down + offset
        if self.mode == "linear":
            ours = (place.double() / up).clamp(0, self.size - 1)
            return bool(torch.allclose(ours, self.places(), rtol=0, atol=1e-6))
        whole = torch.div(2 * place + up, 2 * up, rounding_mode="floor")
        return torch.equal(whole.clamp(0, self.size - 1).double(), self.places())


@cache
def _places(axis: ResizedAxis) -> torch.Tensor:
    """Run torch's own operator on the numbers 0, 1, 2, …; nearest positions are those of f32."""
    aten = torch.ops.aten
    linear = axis.mode == "linear"
    line = torch.arange(axis.size, dtype=torch.float64 if linear else torch.float32)
    line = line.reshape(1, 1, axis.size)
    if linear:
        found = aten.upsample_linear1d.default(line, [axis.wanted], axis.corners, axis.scale)
    elif axis.mode == "nearest":
        found = aten.upsample_nearest1d.default(line, [axis.wanted], axis.scale)
    else:
        found = aten._upsample_nearest_exact1d.default(line, [axis.wanted], axis.scale)
    return found.reshape(-1).double()


def _parameters(axis: ResizedAxis) -> tuple[int, int, int, int]:
    """Return integers with which position `i` is `(i · denominator + offset) / numerator`."""
    if axis.corners and axis.size > 1:
        if axis.wanted == 1:
            return 1, 1, 0, 1 - axis.size
        shared = gcd(axis.wanted - 1, axis.size - 1)
        return (axis.wanted - 1) // shared, (axis.size - 1) // shared, 0, 0
    ratio = Fraction(axis.wanted, axis.size)
    if axis.scale is not None:
        ratio = Fraction(axis.scale).limit_denominator(LARGEST_SCALE)
    # Double the ratio in both, for positions at halves: RESIZE rounds to the nearest, half up.
    up, down = 2 * ratio.numerator, 2 * ratio.denominator
    # By an integer factor, nearest equals nearest-exact, which Vela has for an Ethos-U55 too.
    is_floored = axis.mode == "nearest" and ratio.denominator > 1
    offset = -(up // 2) if is_floored else (down - up) // 2
    shared = gcd(up, down, offset)
    up, down, offset = up // shared, down // shared, offset // shared
    return up, down, offset, (axis.wanted - 1) * down - (axis.size - 1) * up + offset


def neighbors(places: torch.Tensor, size: int) -> tuple[Sequence[int], Sequence[int], torch.Tensor]:
    """Return the two elements around each position, and the weight of the second, `f64`."""
    lower = places.floor().long().clamp(0, size - 1)
    upper = (lower + 1).clamp(max=size - 1)
    return lower.tolist(), upper.tolist(), places - lower
