"""Damaged artefacts, texts, options and command lines: refused in words, or a right result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MUTANTS = Path(__file__).with_name("mutants.py")
KINDS = (
    *("text", "text to xnnpack", "text to tosa", "text to cortex-m", "text to tosa integers"),
    *("text of xnnpack", "text of tosa", "text of cortex-m", "pte", "pte of cortex-m", "pte run"),
    *("tosa", "tosa of integers", "weights", "options", "commands"),
)


def tried(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, MUTANTS, kind, str(count), str(seed)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_few_mutants_of_each_kind_are_refused_or_right() -> None:
    """In forked processes of bounded memory and time: no trace, no abort, no hang."""
    rows = tried("every", 4, 0)
    assert [row for row in rows if "outcome" in row] == []
    assert tuple(row["kind"] for row in rows) == KINDS
    assert all(sum(n for n in row.values() if isinstance(n, int)) == 4 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutants_are_refused_or_right(kind: str, seed: int) -> None:
    assert [row for row in tried(kind, 1000, seed) if "outcome" in row] == []
