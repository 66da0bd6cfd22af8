"""A store of sweep rows in one SQLite file; a row's key is the name of its job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.sweep.rows import Row

SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    key TEXT PRIMARY KEY, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    model TEXT NOT NULL, target TEXT NOT NULL, options TEXT NOT NULL, variant TEXT NOT NULL,
    outcome TEXT NOT NULL, row TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_job ON rows (model, target, options, variant, at);
CREATE TABLE IF NOT EXISTS asked (request TEXT PRIMARY KEY, keys TEXT NOT NULL);
"""


class Store:
    """A file of rows. Each row is committed at once, so an aborted sweep loses no rows."""

    def __init__(self, path: Path) -> None:
        """Open a store, or create a new one.

        Raises:
            StepwellError: the file is not a store, or its folder is not writable.
        """
        self.path = path
        try:
            self._base = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise StepwellError(
                f"{path} cannot be used as a store of rows: {error}",
                help="--store must name a separate SQLite file in an existing folder",
            ) from None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._base.close()

    def put(self, rows: Iterable[Row]) -> None:
        """Store rows; they replace rows with the same keys."""
        held = [
            (row.key, row.model, row.target, json.dumps(row.options, sort_keys=True), row.variant,
             row.outcome, json.dumps(row.to_json()))
            for row in rows
        ]  # fmt: skip
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany(
                "INSERT OR REPLACE INTO rows (key, model, target, options, variant, outcome, row)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                held,
            )

    def get(self, keys: Sequence[str]) -> dict[str, Row]:
        """Return the stored rows with these keys."""
        rows: dict[str, Row] = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            query = f"SELECT key, row FROM rows WHERE key IN ({marks})"
            for key, text in self._base.execute(query, list(some)):
                rows[key] = Row.from_json(json.loads(text))
        return rows

    def remember(self, request: str, keys: Sequence[str]) -> None:
        """Record which rows answer a request (`driver.named_by_content`)."""
        self._base.execute(
            "INSERT OR REPLACE INTO asked VALUES (?, ?)", (request, json.dumps(keys))
        )

    def answer(self, request: str) -> tuple[Row, ...] | None:
        """Return the rows that answer a request, if it was recorded and all rows exist."""
        held = self._base.execute("SELECT keys FROM asked WHERE request = ?", (request,)).fetchone()
        keys: list[str] = json.loads(held[0]) if held else []
        rows = self.get(keys)
        return tuple(rows[key] for key in keys) if keys and len(rows) == len({*keys}) else None

    def latest(self) -> list[Row]:
        """Return the newest row of each model, target, options and variant."""
        query = (
            "SELECT row, max(at) FROM rows GROUP BY model, target, options, variant"
            " ORDER BY model, variant, target"
        )
        return [Row.from_json(json.loads(text)) for text, _ in self._base.execute(query)]

    def __len__(self) -> int:
        return int(self._base.execute("SELECT count(*) FROM rows").fetchone()[0])
