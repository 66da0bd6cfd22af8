"""Hints: options of a lowering that would make the program faster, by the cost model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from stepwell.dialects.xnnpack.costs import KIND_OF, costs_of, load
from stepwell.dialects.xnnpack.costs.nodes import time_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import RefusalRecord

LEAST_FACTOR = 1.05
"""The smallest gain of another mode of `numerics` that is worth a hint."""
LEAST_OF_CPUS = 1.1
"""The smallest gain on one kind of CPU that is worth a hint."""


@dataclass(frozen=True)
class Hint:
    """An option, what it allows, and how many times as fast the program becomes."""

    option: str
    allows: str
    factor: float

    def __str__(self) -> str:
        return f"{self.option} allows {self.allows}: about {self.factor:.1f} times as fast"


def hints(program: Program, refusals: Iterable[RefusalRecord]) -> tuple[Hint, ...]:
    """Return the hints for a lowered program whose gain is worth them."""
    saving = [record for record in refusals if record.saving > 0]
    found = [_finite(program, saving)] if saving else []
    found = [hint for hint in found if hint.factor >= LEAST_FACTOR]
    cpus = dict.fromkeys(cpu for lost in program.context.losses.values() for cpu in lost)
    of_cpus = [_cpu(program, cpu) for cpu in cpus]
    return (*found, *(hint for hint in of_cpus if hint.factor >= LEAST_OF_CPUS))


def _finite(program: Program, saving: list[RefusalRecord]) -> Hint:
    """Return what rewrites would save that only the mode of `numerics` refused."""
    total = time_of(program, costs_of(program.context))
    saved = sum(record.saving for record in saving)
    counts = Counter(record.rewrite for record in saving)
    option = "numerics='finite' (or ranges= of the inputs, if they prove it)"
    allows = ", ".join(f"{name} × {count}" for name, count in counts.items())
    return Hint(option, allows, total / max(total - saved, saved / 100))


def _cpu(program: Program, cpu: str) -> Hint:
    """Return what the program loses on a CPU by being for several."""
    total = time_of(program, load(KIND_OF[cpu]))
    saved = sum(lost.get(cpu, 0.0) for lost in program.context.losses.values())
    factor = total / max(total - saved, total / 100)
    return Hint(f"cpu={cpu!r}", "the forms of nodes that are fastest there", factor)
