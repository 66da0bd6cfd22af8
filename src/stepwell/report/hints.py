"""Hints: options of a lowering that would make the program faster, by the cost model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from stepwell.dialects.xnnpack.costs import costs_of
from stepwell.dialects.xnnpack.costs.nodes import nanoseconds
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import RefusalRecord

LEAST_FACTOR = 1.05
"""The smallest gain that is worth a hint."""


@dataclass(frozen=True)
class Hint:
    """An option, what it allows, and how many times as fast the program becomes."""

    option: str
    allows: str
    factor: float

    def __str__(self) -> str:
        return f"{self.option} allows {self.allows}: about {self.factor:.1f} times as fast"


def hints(program: Program, refusals: Iterable[RefusalRecord]) -> tuple[Hint, ...]:
    """Return the hints for a lowered program that gain at least `LEAST_FACTOR`."""
    saving = [record for record in refusals if record.saving > 0]
    found = [_finite(program, saving)] if saving else []
    return tuple(hint for hint in found if hint.factor >= LEAST_FACTOR)


def _finite(program: Program, saving: list[RefusalRecord]) -> Hint:
    """Return what rewrites would save that only the mode of `numerics` refused."""
    costs = costs_of(program.context)
    total = sum(
        nanoseconds(op, costs)
        for op in program.module.walk()
        if not op.regions and op.operands and op.results and not isinstance(op, WeightOp)
    )
    saved = sum(record.saving for record in saving)
    counts = Counter(record.rewrite for record in saving)
    option = "numerics='finite' (or ranges= of the inputs, if they prove it)"
    allows = ", ".join(f"{name} × {count}" for name, count in counts.items())
    return Hint(option, allows, total / max(total - saved, saved / 100))
