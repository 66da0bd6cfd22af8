"""Choices that a cost model decides, and tables of measured choices.

A rewrite with several alternatives calls `choose` of its program's context. `choose` returns the
alternative that a tuning table names, else the one with the lowest estimated cost. A table is for
one kind of CPU. Its keys are a pass and operand shapes, so that a measurement in one model applies
to all models, and the same table produces the same program on every machine. `stepwell.tune` writes
tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from xdsl.ir import Operation

from stepwell.ir.diagnostics import StepwellError

CLOSE = 1.3
"""Alternatives whose estimated cost is up to this many times the lowest may be the fastest."""


@dataclass(frozen=True)
class Choice:
    """The alternatives of a pass at one place in the program.

    Attributes:
        step: the name of the pass.
        shape: the types of operands and results on which the choice depends, as text.
        costs: each alternative with an estimate of its time.
        chosen: the chosen alternative.
    """

    step: str
    shape: str
    costs: Mapping[str, float]
    chosen: str

    @property
    def key(self) -> str:
        """Return the key of this choice in a table."""
        return f"{self.step} {self.shape}"

    @property
    def others(self) -> list[str]:
        """List the other alternatives that may be the fastest, cheapest estimate first."""
        most = CLOSE * min(self.costs.values())
        near = [name for name, cost in self.costs.items() if cost <= most]
        return sorted((name for name in near if name != self.chosen), key=self.costs.__getitem__)


@dataclass(frozen=True)
class Choices:
    """The kind of an option whose value is a table: a mapping from keys to choices, or a file."""

    def take(self, value: Any) -> dict[str, str] | None:
        """Return the choices of a table, or None if the value is not a table.

        Raises:
            StepwellError: a file cannot be read as a table.
        """
        if isinstance(value, str | PathLike):
            return read_table(Path(cast("str | PathLike[str]", value)))[1]
        if not isinstance(value, Mapping):
            return None
        named = cast("Mapping[Any, Any]", value)
        whole = all(isinstance(text, str) for pair in named.items() for text in pair)
        return dict(named) if whole else None


def shape_of(op: Operation) -> str:
    """Format the types of an op's operands and results."""
    sides = (op.operands, op.results)
    return " -> ".join(", ".join(str(value.type) for value in side) for side in sides)


def read_table(path: Path) -> tuple[str, dict[str, str]]:
    """Read the kind of CPU of a table, and its choices by key.

    Raises:
        StepwellError: the file does not exist or is not a table.
    """
    try:
        held: Any = json.loads(path.read_text())
        kind, choices = held["cpu"], held["choices"]
        whole = isinstance(kind, str) and all(isinstance(v, str) for v in choices.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_table(path, str(error)) from None
    if not whole:
        raise _no_table(path, "its choices are not strings")
    return kind, dict(choices)


def _no_table(path: Path, why: str) -> StepwellError:
    return StepwellError(
        f"{path} is not a table of choices: {why}", help="stepwell sweep --tune FILE writes a table"
    )
