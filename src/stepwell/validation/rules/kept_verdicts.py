"""Verdicts on rules that were reached before, by a rule's hash: nobody needs a solver.

`make prove` writes `verdicts.json`, and `conditions.json` for what becomes of rules without each
condition. A rule whose text or functions have changed since has no verdict here; `--new` asks
everything again once the prover has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from stepwell.ir.platform.files import write_atomically
from stepwell.validation.rules.hashes import hash_of_prover
from stepwell.validation.rules.verdicts import Verdict

Kind = Literal["refuted", "labeled", "open"]


@dataclass(frozen=True)
class Dropped:
    """What becomes of a rule without one of its conditions.

    Attributes:
        rule, condition: its name, and the condition in short.
        label: what the rule's text says that the condition is for.
        kind: whether it is needed, is what its label says, or neither was shown.
        reason: a program that is wrong without it; what the label was shown by; why it is open.
        hash: of the rule (`hashes.whole_hash_of`).
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
    """By a rule's hash, what was proved of it."""
    rows: list[dict[str, Any]] = [{"of_labels": False, **row} for row in _read(FILE)["rows"]]
    return {row["hash"]: Verdict(**row) for row in rows}


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {"prover": "", "rows": []}


def _write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    text = json.dumps({"prover": hash_of_prover(), "rows": [*rows]}, indent=0, ensure_ascii=False)
    write_atomically(file, text.encode() + b"\n")


def is_of_this_prover(file: Path = FILE) -> bool:
    """Whether what is kept was answered by the prover as it is."""
    return _read(file)["prover"] == hash_of_prover()


def keep(verdicts: Iterable[Verdict]) -> None:
    """Write the file."""
    names = ("rule", "kind", "scope", "reason", "instances", "pairs", "partial", "hash",
             "of_labels")  # fmt: skip
    _write(FILE, ({name: getattr(verdict, name) for name in names} for verdict in verdicts))
    known.cache_clear()


CONDITIONS = FILE.with_name("conditions.json")


def known_conditions() -> list[Dropped]:
    """What was shown of conditions, in the order of rules."""
    return [Dropped(**row) for row in _read(CONDITIONS)["rows"]]


def keep_conditions(rows: Iterable[Dropped]) -> None:
    """Write their file."""
    _write(CONDITIONS, map(vars, rows))


def covers(verdict: Verdict, rank: int) -> bool:
    """Whether a proof is of tensors of any sizes of a rank, with any arguments."""
    if not verdict.is_proved:
        return False
    if verdict.scope == "all shapes":
        return True
    prefix = "all sizes, up to rank "
    most = verdict.scope.removeprefix(prefix)
    return verdict.scope.startswith(prefix) and most.isdigit() and rank <= int(most)
