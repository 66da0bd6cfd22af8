"""The cost of a transpose: one formula with a target's constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stepwell.ir.types import Dim


@dataclass(frozen=True)
class LayoutCost:
    """The cost of transposes, in moved elements; only costs of one target are compared.

    Attributes:
        op: the fixed cost of an operator, in addition to the moved elements.
        in_place: the cost of an element if only axes of size 1 move.
        unknown_size: the value of a symbolic size.
    """

    op: float
    in_place: float
    unknown_size: int

    def of(self, shape: Sequence[Dim], in_place: bool) -> float:
        """Return the cost of a transpose of this shape; `in_place` if no element moves
        in memory.
        """
        size = prod(number if isinstance(number, int) else self.unknown_size for number in shape)
        return self.op + size * (self.in_place if in_place else 1.0)
