"""Choices that costs decide, and tables of those that were measured.

A rewrite that may do one thing or another asks its program's context which: `choose` takes what
the costs say unless a table knows better. A table is for one kind of CPU and goes by step and
shape, so that what was measured in one model serves every other; the same table gives the same
program on every machine. `stepwell.tune` writes them.
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
"""What costs this many times the least may be the fastest."""


@dataclass(frozen=True)
class Choice:
    """What a step could do at one place.

    Attributes:
        step: the step's name.
        shape: what the choice hangs on, as text: types of operands and results.
        costs: each thing that it can do, with an estimate of its time.
        chosen: one of them.
    """

    step: str
    shape: str
    costs: Mapping[str, float]
    chosen: str

    @property
    def key(self) -> str:
        """What a table calls it."""
        return f"{self.step} {self.shape}"

    @property
    def others(self) -> list[str]:
        """What else may be the fastest, the likeliest first."""
        most = CLOSE * min(self.costs.values())
        near = [name for name, cost in self.costs.items() if cost <= most]
        return sorted((name for name in near if name != self.chosen), key=self.costs.__getitem__)


@dataclass(frozen=True)
class Choices:
    """The kind of an option that takes a table: a mapping from keys to choices, or its file."""

    def take(self, value: Any) -> dict[str, str] | None:
        """The choices of a table, or None for what is none.

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
    """The types of an op's operands and results."""
    sides = (op.operands, op.results)
    return " -> ".join(", ".join(str(value.type) for value in side) for side in sides)


def read_table(path: Path) -> tuple[str, dict[str, str]]:
    """The kind of CPU of a table, and its choices by key.

    Raises:
        StepwellError: there is no such file, or it is no table.
    """
    try:
        held: Any = json.loads(path.read_text())
        kind, choices = held["cpu"], held["choices"]
        whole = isinstance(kind, str) and all(isinstance(v, str) for v in choices.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_table(path, str(error)) from None
    if not whole:
        raise _no_table(path, "its choices are no words")
    return kind, dict(choices)


def _no_table(path: Path, why: str) -> StepwellError:
    return StepwellError(
        f"{path} is no table of choices: {why}", help="stepwell sweep --tune FILE writes one"
    )
