"""Damaged artifacts, texts, options and command lines: refused in words, or a right result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from forking import Forks

MUTANTS = Path(__file__).with_name("mutants.py")
sys.path.insert(0, str(MUTANTS.parent))
from mutants import HAS_GGUF, OTHERS  # noqa: E402

KINDS = (
    *("text", "text to xnnpack", "text to tosa", "text to cortex-m", "text to tosa integers"),
    *("text of xnnpack", "text of tosa", "text of cortex-m", "pte", "pte of cortex-m", "pte run"),
    *("tosa", "tosa of integers", "weights", *OTHERS, "options", "commands"),
)


def tried(forks: Forks, kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    done = forks.run([MUTANTS, kind, str(count), str(seed)])
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_few_mutants_of_each_kind_are_refused_or_right(forks: Forks) -> None:
    """In forked processes of bounded memory and time: no trace, no abort, no hang."""
    rows = tried(forks, "every", 4, 0)
    assert [row for row in rows if "outcome" in row] == []
    assert tuple(row["kind"] for row in rows) == KINDS
    assert all(sum(n for n in row.values() if isinstance(n, int)) == 4 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", [*KINDS, *["gguf"] * HAS_GGUF])
def test_many_mutants_are_refused_or_right(kind: str, seed: int, forks: Forks) -> None:
    assert [row for row in tried(forks, kind, 1000, seed) if "outcome" in row] == []
