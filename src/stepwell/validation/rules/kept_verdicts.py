"""Store verdicts on rules by the rule's hash, and write their tables in `docs/proofs.md`.

`make prove` writes `verdicts.json`, and `conditions.json` for the rules without each condition. A
rule whose text or functions changed has no verdict here. `--new` proves everything again if the
prover changed.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from stepwell.ir.declared.families import families_of, is_of
from stepwell.ir.platform.files import write_atomically
from stepwell.translate.rules.notation import WEIGHT
from stepwell.validation.rules.hashes import hash_of_prover
from stepwell.validation.rules.instantiation import Statement
from stepwell.validation.rules.op_kinds import tensors_of
from stepwell.validation.rules.verdicts import SAID, Verdict, rules

Kind = Literal["refuted", "labeled", "open"]


@dataclass(frozen=True)
class Dropped:
    """The verdict on a rule without one of its conditions.

    Attributes:
        rule, condition: the rule's name, and the abbreviated condition.
        label: the purpose of the condition in the rule's text.
        kind: whether the condition is necessary, has its label's purpose, or neither was shown.
        reason: a program that is wrong without the condition; the evidence for the label; or why
            neither was shown.
        hash: the rule's hash (`hashes.whole_hash_of`).
    """

    rule: str
    condition: str
    label: str
    kind: Kind
    reason: str
    hash: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the condition is necessary, or has its label's purpose."""
        return self.kind != "open"

    def __str__(self) -> str:
        return f"{self.kind}{f', for {self.label}' if self.label else ''}: {self.reason}"


def shortened(text: str, most: int) -> str:
    """Return a text as one line of fewer than `most` characters."""
    line = " ".join(text.split())
    return line if len(line) < most else line[: most - 3] + "…"


FILE = Path(__file__).parent / "verdicts.json"


@cache
def known() -> dict[str, Verdict]:
    """Return the stored verdicts by the rule's hash."""
    rows: list[dict[str, Any]] = [{"of_labels": False, **row} for row in _read(FILE)["rows"]]
    return {row["hash"]: Verdict(**row) for row in rows}


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {"prover": "", "rows": []}


def _write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    text = json.dumps({"prover": hash_of_prover(), "rows": [*rows]}, indent=0, ensure_ascii=False)
    write_atomically(file, text.encode() + b"\n")


def is_of_this_prover(file: Path = FILE) -> bool:
    """Whether the stored verdicts are from the current version of the prover."""
    return _read(file)["prover"] == hash_of_prover()


def keep(verdicts: Iterable[Verdict]) -> None:
    """Write the file of verdicts on rules."""
    names = ("rule", "kind", "scope", "reason", "instances", "pairs", "partial", "hash",
             "of_labels", "argument")  # fmt: skip
    _write(FILE, ({name: getattr(verdict, name) for name in names} for verdict in verdicts))
    known.cache_clear()


CONDITIONS = FILE.with_name("conditions.json")


def known_conditions() -> list[Dropped]:
    """Return the stored verdicts on conditions, in the order of rules."""
    return [Dropped(**row) for row in _read(CONDITIONS)["rows"]]


def keep_conditions(rows: Iterable[Dropped]) -> None:
    """Write the file of verdicts on conditions."""
    _write(CONDITIONS, map(vars, rows))


def covers(verdict: Verdict, rank: int) -> bool:
    """Whether a proof covers tensors of any sizes of a rank, with any arguments."""
    if not verdict.is_proved:
        return False
    if verdict.scope in ("any rank, any size", "its rank, any size"):
        return True
    prefix = "all sizes, up to rank "
    most = verdict.scope.removeprefix(prefix)
    return verdict.scope.startswith(prefix) and most.isdigit() and rank <= int(most)


_MOVING = ("movement", "padding", "lookup")
_RENAMES = ("quant.scast", "aten.sym_size.int")
"""Ops that give elements another name, or read a size."""


def moves_data(rule: str) -> bool:
    """Whether all ops of a rule, before and after, move elements without changing them."""
    rewrite = rules().get(rule)
    lines = [line for form in rewrite.rule.forms for line in form.before] if rewrite else []
    ops = [line.op for line in lines if line.op != WEIGHT]
    listed = [line.family for line in lines if line.is_again]
    names = [op for op in ops if not op.startswith("$")]
    moves = bool(ops) and set(listed) <= {"MOVEMENT", "PERMUTATIONS"}
    if rewrite is None or not (
        moves and all(families_of(name).intersection(_MOVING) for name in names)
    ):
        return False
    written = (Statement(rewrite, form).concrete({}) for form in rewrite.rule.forms)
    fresh = [op for each in written if each is not None for op in each.fresh]
    return all(is_of(op, *_MOVING) or op.name in _RENAMES for op in fresh if tensors_of(op))


START = "<!-- written by `stepwell prove --table docs/proofs.md` -->"


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as Markdown: the counts by kind, and a row for each rule."""
    counted = Counter(verdict.kind for verdict in verdicts)
    lines = [START, "", "| verdict | rules |", "|---|---|"]
    lines += [f"| {said} | {counted[kind]} |" for kind, said in SAID.items()]
    lines += [
        "",
        "| for any size, of any rank (or the only one), by the argument | rules |",
        "|---|---|",
    ]
    reasons = Counter(verdict.argument for verdict in verdicts if verdict.argument)
    lines += [f"| {reason} | {count} |" for reason, count in sorted(reasons.items())]
    lines.append(f"| all of them, of {len(verdicts)} | {reasons.total()} |")
    moving = [verdict for verdict in verdicts if moves_data(verdict.rule)]
    held = sum(bool(verdict.argument) for verdict in moving)
    lines.append(f"| of the {len(moving)} that only move data | {held} |")
    lines += ["", "| rule | verdict | for | argument |", "|---|---|---|---|"]
    for verdict in verdicts:
        why = verdict.scope if verdict.is_proved else verdict.reason.replace("|", "¦")
        row = (f"`{verdict.rule}`", SAID[verdict.kind], shortened(why, 140), verdict.argument)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def conditions(rows: Sequence[Dropped]) -> str:
    """Return Markdown tables on which conditions rules need: counts, and conditions not refuted."""
    counted = Counter((row.kind, row.label) for row in rows)
    lines = ["", "| condition | count |", "|---|---|"]
    for (kind, label), count in sorted(counted.items(), key=lambda each: -each[1]):
        lines.append(f"| {kind}{f', for {label}' if label else ''} | {count} |")
    lines += ["", "| rule | condition | shown |", "|---|---|---|"]
    for row in rows:
        if row.kind != "refuted":
            said = shortened(str(row).replace("|", "¦"), 140)
            lines.append(f"| `{row.rule}` | `{row.condition}` | {said} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, verdicts: Sequence[Verdict], rows: Sequence[Dropped]) -> str:
    """Return a page with its tables replaced; the text before them is unchanged."""
    return page.partition(START)[0] + table(verdicts) + conditions(rows)
