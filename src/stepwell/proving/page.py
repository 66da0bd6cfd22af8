"""The table of `docs/proofs.md`: a verdict a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stepwell.proving.verdicts import SAID, Verdict

START = "<!-- written by `stepwell prove --table docs/proofs.md` -->"


def table(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as Markdown: how many of each kind, and a row a rule."""
    counted = Counter(verdict.kind for verdict in verdicts)
    lines = [START, "", "| verdict | rules |", "|---|---|"]
    lines += [f"| {said} | {counted[kind]} |" for kind, said in SAID.items()]
    lines += ["", "| rule | verdict | for |", "|---|---|---|"]
    for verdict in verdicts:
        why = verdict.scope if verdict.is_proved else verdict.reason.replace("|", "¦")
        lines.append(f"| `{verdict.rule}` | {SAID[verdict.kind]} | {_short(why)} |")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 140 else line[:137] + "…"


def with_table(page: str, verdicts: Sequence[Verdict]) -> str:
    """A page with its table anew; what stands before it stays."""
    return page.partition(START)[0] + table(verdicts)
