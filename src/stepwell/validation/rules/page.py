"""The tables of `docs/proofs.md`: the verdict on each rule, and the purpose of its conditions."""

from collections import Counter
from collections.abc import Sequence

from stepwell.validation.rules.kept_verdicts import Dropped, shortened
from stepwell.validation.rules.verdicts import SAID, Verdict

START = "<!-- written by `stepwell prove --table docs/proofs.md` -->"


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as Markdown: the counts by kind, and a row for each rule."""
    counted = Counter(verdict.kind for verdict in verdicts)
    lines = [START, "", "| verdict | rules |", "|---|---|"]
    lines += [f"| {said} | {counted[kind]} |" for kind, said in SAID.items()]
    lines += ["", "| rule | verdict | for |", "|---|---|---|"]
    for verdict in verdicts:
        why = verdict.scope if verdict.is_proved else verdict.reason.replace("|", "¦")
        lines.append(f"| `{verdict.rule}` | {SAID[verdict.kind]} | {shortened(why, 140)} |")
    return "\n".join(lines) + "\n"


def conditions(rows: Sequence[Dropped]) -> str:
    """Return the verdicts on rules without each condition: counts, and those that are not
    refuted.
    """
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
