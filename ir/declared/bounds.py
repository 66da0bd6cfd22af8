"""Error bounds of rewrites: by constants, by magnitudes of values, or derived from the roundings of
operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Bound:
    """The error bound of a pass: |after - before| <= absolute + relative * |before|.

    A quantized result may also differ by `units` of its scale: its stored integers differ by at
    most that number. `varies` means that the constants depend on the values: `Rewrite.bound_at`
    derives them. `reason` names the source of the difference (`reassociation`, `folding in f32`,
    …).

    Attributes:
        magnitudes: (factor, names of values) pairs of a rule: the result may also differ by the
            factor times the sum of their magnitudes.
        derived: both sides are the same function of real numbers and may differ by the roundings of
            their operators; `validation.derived` computes the bound of each element.
        allowance: the derived bound for the current values, as a tensor.
    """

    relative: float = 0.0
    absolute: float = 0.0
    reason: str = ""
    units: int = 0
    varies: bool = False
    magnitudes: tuple[tuple[float, tuple[str, ...]], ...] = ()
    derived: bool = False
    allowance: Any = field(default=None, compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Whether results must be equal bit for bit (a NaN equals a NaN)."""
        return not (self.relative or self.absolute or self.is_local)

    def times(self, factor: float) -> Bound:
        """Return this bound multiplied by a factor."""
        scaled = tuple((factor * each, names) for each, names in self.magnitudes)
        numbers = factor * self.relative, factor * self.absolute
        return replace(self, relative=numbers[0], absolute=numbers[1], magnitudes=scaled)

    @property
    def is_local(self) -> bool:
        """Whether the bound holds at the replaced value only.

        Such a bound says nothing about later results, because later layers scale the difference.
        """
        return self.varies or self.derived or self.units > 0


EXACT = Bound()


def roundings(reason: str) -> Bound:
    """Return the bound of a rewrite that is exact in real arithmetic and rounds differently."""
    return Bound(reason=reason, derived=True)
