"""How far a rewrite may move a result: by numbers, by magnitudes, or by what operators round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Bound:
    """How far a step may move a result: |after - before| <= absolute + relative * |before|.

    A quantized result may also move by `units` of its own scale: its stored integers differ by so
    many. `varies` says that the numbers depend on the values at hand: `Rewrite.bound_at` derives
    them. `reason` names the source of the difference (`reassociation`, `folding in f32`, …).

    Attributes:
        magnitudes: (factor, names of values) pairs of a rule: it may move by the factor times the
            sum of their magnitudes too.
        derived: both sides are the same function of real numbers, and may differ by what their
            operators round: `checking.derived` says by how much, element by element.
        allowance: that bound at the values at hand, as a tensor.
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
        """So many times the numbers of this one."""
        scaled = tuple((factor * each, names) for each, names in self.magnitudes)
        numbers = factor * self.relative, factor * self.absolute
        return replace(self, relative=numbers[0], absolute=numbers[1], magnitudes=scaled)

    @property
    def is_local(self) -> bool:
        """Whether it holds at the replaced value only.

        What a unit becomes further down is not bounded by it: later layers scale it.
        """
        return self.varies or self.derived or self.units > 0


EXACT = Bound()


def roundings(reason: str) -> Bound:
    """The bound of what changes no real number, and rounds otherwise on the way."""
    return Bound(reason=reason, derived=True)
