"""The context of one lowering: its target, options and cached facts. It contains no process-wide
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, cast

from xdsl.ir import Operation

from stepwell.ir.choices import Choice
from stepwell.ir.diagnostics import StepwellError

Place = tuple[str, str, str | None]
"""Where a rewrite was tried: its name, the op's name, and the name of the op's node in the model.
"""


class ChoiceError(StepwellError):
    """A table of choices names an unknown alternative, which is the user's error."""


_T = TypeVar("_T")
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Context:
    """The target, options and facts of one lowering.

    `lower` sets a new context on the program that it changes; rewrites read it as
    `program.context`. The context of a program outside a lowering is empty.
    """

    target: str = ""
    """The target's name; empty outside a lowering."""
    options: Mapping[str, Any] = field(default_factory=lambda: NO_OPTIONS)
    """The value of every option of the target, including defaults."""
    exact: frozenset[tuple[str, str]] = frozenset()
    """Ops, with dtypes, that a rewrite of the pipeline keeps from their nodes' deviations."""
    choices: dict[str, Choice] = field(default_factory=dict[str, Choice])
    """The choices made by the cost model or by a table, by key."""
    losses: dict[tuple[str, Operation], Mapping[str, float]] = field(
        default_factory=dict[tuple[str, Operation], Mapping[str, float]], repr=False
    )
    """By pass and op, the nanoseconds that a choice for several CPUs loses on each of them."""
    left_alone: dict[Place, str] = field(default_factory=dict["Place", str])
    """Where a pass raised an internal error, with the message: the op there stays unchanged."""

    running: str = ""
    """The name of the pass, or of the rewrite in `build`, that runs now."""
    statistics: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """What passes counted, by the name of the pass or rewrite."""
    judges: bool = True
    """Whether rewrites of plug-ins are judged on the target's engines as they apply."""

    known: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any], repr=False)
    """Cached results of analyses of the current program, by the class of the analysis."""

    def facts(self, analysis: type[_T], begin: Callable[[], _T]) -> _T:
        """Return the cached result of an analysis, which is computed again after `forget`."""
        found = self.known.get(analysis)
        if found is None:
            found = self.known[analysis] = begin()
        return cast(_T, found)

    def forget(self) -> None:
        """Invalidate all analyses, because the elements of a value changed."""
        self.known.clear()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a statistic of the pass that runs now."""
        self.statistics.setdefault(self.running, Counter())[name] += amount

    def option(self, name: str, default: Any = None) -> Any:
        """Return the value of an option, or `default` if the target does not have it."""
        return self.options.get(name, default)

    def choose(
        self, step: str, shape: str, costs: Mapping[str, float], default: str | None = None
    ) -> str:
        """Choose one of several alternatives: the one that a table names, else the cheapest.

        Args:
            step: the pass that chooses.
            shape: the shapes on which the choice depends (`choices.shape_of`).
            costs: the alternatives with an estimated time of each; the first wins ties.
            default: the cost model's choice, if it is not the cheapest.

        Raises:
            StepwellError: a table names an unknown alternative.
        """
        table: Mapping[str, str] = self.option("tuned") or {}
        by_cost = default or min(costs, key=costs.__getitem__)
        choice = Choice(step, shape, dict(costs), table.get(f"{step} {shape}", by_cost))
        if (chosen := choice.chosen) not in costs:
            raise ChoiceError(
                f"the table of choices names an unknown alternative, {chosen!r}, for {choice.key}",
                help=f"alternatives are {', '.join(costs)}; measure again: stepwell sweep --tune",
            )
        self.choices[choice.key] = choice
        return chosen


def statistics_lines(statistics: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return what passes counted as lines of text, a line for each pass."""
    return ["statistics:"] + [
        f"  {step}: " + ", ".join(f"{name} × {count}" for name, count in counts.items())
        for step, counts in statistics.items()
    ]
