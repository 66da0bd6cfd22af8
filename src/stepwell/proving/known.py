"""Verdicts on rules that were reached before, by the hash of a rule's text: nobody needs a solver.

`make prove` writes `verdicts.json`, and `conditions.json` for what becomes of rules without each
condition; a rule whose text has changed since has no verdict here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from stepwell.ir.outside.files import write_atomically
from stepwell.ir.records import dataclass
from stepwell.proving.verdicts import Verdict

Kind = Literal["refuted", "labelled", "open"]


@dataclass(frozen=True)
class Dropped:
    """What becomes of a rule without one of its conditions.

    Attributes:
        rule, condition: its name, and the condition in short.
        label: what the rule's text says that the condition is for.
        kind: whether it is needed, is what its label says, or neither was shown.
        reason: a program that is wrong without it; what the label was shown by; why it is open.
        hash: of the rule's text.
    """

    rule: str
    condition: str
    label: str
    kind: Kind
    reason: str
    hash: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it is needed, or is for what it says."""
        return self.kind != "open"

    def __str__(self) -> str:
        return f"{self.kind}{f', for {self.label}' if self.label else ''}: {self.reason}"


FILE = Path(__file__).parent / "verdicts.json"


@cache
def known() -> dict[str, Verdict]:
    """By hash of a rule's text, what was proved of it."""
    if not FILE.exists():
        return {}
    held: list[dict[str, Any]] = json.loads(FILE.read_text())
    rows: list[dict[str, Any]] = [{"of_labels": False, **row} for row in held]
    return {row["hash"]: Verdict(**row) for row in rows}


def written(verdicts: Iterable[Verdict]) -> str:
    """The file's text."""
    names = ("rule", "kind", "scope", "reason", "instances", "pairs", "partial", "hash",
             "of_labels")  # fmt: skip
    rows = [{name: getattr(verdict, name) for name in names} for verdict in verdicts]
    return json.dumps(rows, indent=0, ensure_ascii=False) + "\n"


def keep(verdicts: Iterable[Verdict]) -> None:
    """Write the file."""
    write_atomically(FILE, written(verdicts).encode())
    known.cache_clear()


CONDITIONS = FILE.with_name("conditions.json")


def known_conditions() -> list[Dropped]:
    """What was shown of conditions, in the order of rules."""
    rows: list[dict[str, Any]] = json.loads(CONDITIONS.read_text()) if CONDITIONS.exists() else []
    return [Dropped(**row) for row in rows]


def keep_conditions(rows: Iterable[Dropped]) -> None:
    """Write their file."""
    text = json.dumps([vars(row) for row in rows], indent=0, ensure_ascii=False) + "\n"
    write_atomically(CONDITIONS, text.encode())


def covers(verdict: Verdict, rank: int) -> bool:
    """Whether a proof is of tensors of any sizes of a rank, with any arguments."""
    if not verdict.is_proved:
        return False
    if verdict.scope == "all shapes":
        return True
    prefix = "all sizes, up to rank "
    most = verdict.scope.removeprefix(prefix)
    return verdict.scope.startswith(prefix) and most.isdigit() and rank <= int(most)
