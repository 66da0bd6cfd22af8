"""Verdicts on rules that were reached before, by the hash of a rule's text: nobody needs a solver.

`make prove` writes `verdicts.json`; a rule whose text has changed since has no verdict here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from stepwell.ir.outside.files import write_atomically
from stepwell.proving.verdicts import Verdict

FILE = Path(__file__).parent / "verdicts.json"


@cache
def known() -> dict[str, Verdict]:
    """By hash of a rule's text, what was proved of it."""
    if not FILE.exists():
        return {}
    held: list[dict[str, Any]] = json.loads(FILE.read_text())
    return {row["hash"]: Verdict(**row) for row in held}


def written(verdicts: Iterable[Verdict]) -> str:
    """The file's text."""
    names = ("rule", "kind", "scope", "reason", "instances", "pairs", "partial", "hash")
    rows = [{name: getattr(verdict, name) for name in names} for verdict in verdicts]
    return json.dumps(rows, indent=0, ensure_ascii=False) + "\n"


def keep(verdicts: Iterable[Verdict]) -> None:
    """Write the file."""
    write_atomically(FILE, written(verdicts).encode())
    known.cache_clear()


def covers(verdict: Verdict, rank: int) -> bool:
    """Whether a proof is of tensors of any sizes of a rank, with any arguments."""
    if not verdict.is_proved:
        return False
    if verdict.scope == "all shapes":
        return True
    prefix = "all sizes, up to rank "
    most = verdict.scope.removeprefix(prefix)
    return verdict.scope.startswith(prefix) and most.isdigit() and rank <= int(most)
