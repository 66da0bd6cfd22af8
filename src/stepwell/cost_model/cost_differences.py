"""Differences in cost-based decisions between two CPUs: `stepwell explain MODEL --costs A B`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.ir.choices import Choice
from stepwell.lowering import lower
from stepwell.program import Program


@dataclass(frozen=True)
class Flipped:
    """A choice that the costs of two CPUs decide differently.

    Attributes:
        first, second: the alternative chosen on each CPU; None if the choice does not arise there.
    """

    first: Choice | None
    second: Choice | None

    @property
    def gain(self) -> float | None:
        """Return how many times faster, on the second CPU, its alternative is than the first
        CPU's.
        """
        if self.first is None or self.second is None:
            return None
        costs = self.second.costs
        return costs[self.first.chosen] / costs[self.second.chosen]

    def __str__(self) -> str:
        known = self.second or self.first
        assert known is not None
        forms = [choice.chosen if choice else "–" for choice in (self.first, self.second)]
        gain = "" if self.gain is None else f" ({self.gain:.2f}×)"
        return f"{known.key}: {forms[0]} → {forms[1]}{gain}"


@dataclass(frozen=True)
class CostDifferences:
    """The choices of one program on two CPUs.

    Attributes:
        cpus: the names of the CPUs; None stands for the default costs.
        asked: the number of choices on each CPU.
        flipped: the choices that differ.
        nodes: the number of each node on the second CPU minus that on the first, which shows
            decisions without a named choice (layouts, narrowed types).
    """

    cpus: tuple[str | None, str | None]
    asked: tuple[int, int]
    flipped: tuple[Flipped, ...]
    nodes: Mapping[str, int]

    def __str__(self) -> str:
        first, second = (cpu or "the usual costs" for cpu in self.cpus)
        counts = " and ".join(map(str, self.asked))
        lines = [f"{first} → {second}: {counts} choices, {len(self.flipped)} differ"]
        lines += [f"  {one}" for one in self.flipped]
        lines += [f"  {name}: {count:+d}" for name, count in self.nodes.items()]
        return "\n".join(lines)


def cost_differences(
    program: Program, cpus: Sequence[str | None], target: str = "xnnpack", **options: Any
) -> CostDifferences:
    """Lower a program for two CPUs and compare the decisions by cost.

    Args:
        program: as for `lower`.
        cpus: two values of the target's option `cpu`.
        target: the target.
        options: further options of the target.

    Raises:
        StepwellError: a CPU is unknown, or the program cannot be lowered.
    """
    first, second = (lower(program, target, cpu=cpu, **options).program for cpu in cpus)
    before, after = first.context.choices, second.context.choices
    flipped = [
        Flipped(before.get(key), after.get(key))
        for key in dict.fromkeys((*before, *after))
        if key not in before or key not in after or before[key].chosen != after[key].chosen
    ]
    had, has = _nodes(first), _nodes(second)
    differing = {n: has[n] - had[n] for n in sorted({*had, *has}) if has[n] != had[n]}
    return CostDifferences((cpus[0], cpus[1]), (len(before), len(after)), tuple(flipped), differing)


def _nodes(program: Program) -> Counter[str]:
    return Counter(op.name for op in program.module.walk() if op.name.startswith("xnnpack."))
