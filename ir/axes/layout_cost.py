"""What changing the order of a tensor's axes costs: one formula, a target's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stepwell.ir.types import Dim


@dataclass(frozen=True)
class LayoutCost:
    """In elements moved, so that targets compare copies of their own alone.

    Attributes:
        op: what an operator costs beside its elements.
        in_place: an element where only axes of size 1 move.
        unknown_size: what a symbolic size counts as.
    """

    op: float
    in_place: float
    unknown_size: int

    def of(self, shape: Sequence[Dim], in_place: bool) -> float:
        """A transpose of this shape, all of whose elements stay where they lie if `in_place`."""
        size = prod(number if isinstance(number, int) else self.unknown_size for number in shape)
        return self.op + size * (self.in_place if in_place else 1.0)
