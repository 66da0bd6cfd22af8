"""The context of one lowering: what it was asked for. Nothing of this is process-wide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, cast

from stepwell.ir.choices import Choice
from stepwell.ir.diagnostics import StepwellError

Place = tuple[str, str, str | None]
"""A rewrite at an op: its name, the op's, and that of the op's node in the model."""


class ChoiceError(StepwellError):
    """A table of choices names what cannot be chosen: its user's mistake, not a step's."""


_T = TypeVar("_T")
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Context:
    """What one lowering knows: its target and the options that the caller chose.

    `lower` gives the program that it works on a context of its own; a rewrite reads it as
    `program.context`. A program that is not being lowered has an empty one.
    """

    target: str = ""
    """The target's name; empty outside a lowering."""
    options: Mapping[str, Any] = field(default_factory=lambda: NO_OPTIONS)
    """The value of every option of the target, defaults too."""
    choices: dict[str, Choice] = field(default_factory=dict[str, Choice])
    """What costs or a table decided, by key."""
    left_alone: dict[Place, str] = field(default_factory=dict["Place", str])
    """Where a step made a mistake of its own, and the sentence about it: its op stays as it is."""

    known: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any], repr=False)
    """What analyses know of the program as it is, by the class of the analysis."""

    def facts(self, analysis: type[_T], begin: Callable[[], _T]) -> _T:
        """What an analysis knows of the program; begun anew after `forget`."""
        found = self.known.get(analysis)
        if found is None:
            found = self.known[analysis] = begin()
        return cast(_T, found)

    def forget(self) -> None:
        """Let analyses begin anew: a value holds other numbers than it did."""
        self.known.clear()

    def option(self, name: str, default: Any = None) -> Any:
        """The value of an option, or `default` outside a lowering to a target that has it."""
        return self.options.get(name, default)

    def choose(
        self, step: str, shape: str, costs: Mapping[str, float], default: str | None = None
    ) -> str:
        """One of several things to do: what a table of this lowering says, else what costs say.

        Args:
            step: who asks.
            shape: what the choice hangs on (`choices.shape_of`).
            costs: things to do, each with an estimate of its time in any unit; of equals the first.
            default: what costs say, where that is not just the least.

        Raises:
            StepwellError: a table names something else.
        """
        table: Mapping[str, str] = self.option("tuned") or {}
        by_cost = default or min(costs, key=costs.__getitem__)
        choice = Choice(step, shape, dict(costs), table.get(f"{step} {shape}", by_cost))
        if (chosen := choice.chosen) not in costs:
            raise ChoiceError(
                f"the table of choices says {chosen!r} for {choice.key}",
                help=f"it can be {', '.join(costs)}; measure anew: stepwell sweep --tune",
            )
        self.choices[choice.key] = choice
        return chosen
