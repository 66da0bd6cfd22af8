"""Format rows as tables: in the terminal during a sweep, and at its end."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from stepwell.model_zoo.sweep.rows import FAULTS, OUTCOMES, Row

LAST = 8
"""Rows that are shown as they come."""


def outcome_table(rows: Sequence[Row]) -> Table:
    """Return a table of outcomes by target."""
    counted: dict[str, Counter[str]] = {}
    for row in rows:
        counted.setdefault(row.target, Counter())[row.outcome] += 1
    seen = [outcome for outcome in OUTCOMES if any(c[outcome] for c in counted.values())]
    table = Table("target", *seen, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for target, counts in sorted(counted.items()):
        table.add_row(target, *(str(counts[outcome] or "–") for outcome in seen))
    return table


def row_table(rows: Sequence[Row]) -> Table:
    """Return a table of some rows, one per line."""
    table = Table("model", "target", "outcome", "delegates/outside", "error", "CPU s")
    for row in rows:
        counts = "" if row.delegates is None else f"{row.delegates}/{sum(row.outside.values())}"
        error = "" if row.error is None else f"{row.error:.0e}"
        took = "" if row.lower_seconds is None else f"{row.lower_seconds:.2f}"
        color = "red" if row.outcome in FAULTS else "green" if row.outcome == "right" else "yellow"
        table.add_row(row.model, row.target, f"[{color}]{row.outcome}[/]", counts, error, took)
    return table


def outcome_lines(rows: Sequence[Row]) -> str:
    """Return outcomes by target and every faulty row, as text."""
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(outcome_table(rows))
    for row in [row for row in rows if row.outcome in FAULTS]:
        console.print(f"{row.outcome}: {row.model} on {row.target} ({row.variant}): {_said(row)}")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def outcome_html(rows: Sequence[Row]) -> str:
    """Return the table of outcomes by target as HTML."""
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(outcome_table(rows))
    return console.export_html(inline_styles=True)


def _said(row: Row) -> str:
    lines = row.note.strip().splitlines() or [""]
    return f"{row.stage}: {lines[0] if row.outcome == 'crashed' else lines[-1]}"


@dataclass
class LiveTable:
    """A progress bar, the outcomes so far, and the last rows."""

    last: list[Row] = field(default_factory=list[Row])
    rows: list[Row] = field(default_factory=list[Row])

    def __post_init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        self.task = self.bar.add_task("sweep", total=None)

    def update(self, done: int, of: int, rows: Sequence[Row]) -> None:
        """Add new rows to the table."""
        self.rows += rows
        self.last = [*self.last, *rows][-LAST:]
        self.bar.update(self.task, completed=done, total=of)

    def __rich__(self) -> RenderableType:
        return Group(row_table(self.last), outcome_table(self.rows), self.bar)
