"""Summarize a store of rows: as Markdown for a document, or as an HTML page with filters."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from stepwell.inspection.viewer.page import embedded
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.model_zoo.sweep.rows import FAULTS, OUTCOMES, UNFIT, Row

MARKS = ("<!-- sweep -->", "<!-- /sweep -->")
"""Comments of a document that enclose the tables."""
EITHER = ("tosa-1.0+fp", "tosa-1.0+fp+int")
"""TOSA's float profile, and both."""
REASONS = 25
"""Sentences that are listed for each target."""


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as tables between the markers of a `.md` file, or as an `.html` file.

    Raises:
        StepwellError: the document has no such markers, or another suffix.
    """
    if path.suffix == ".html":
        write_atomically(path, page(rows).encode())
        return
    if path.suffix != ".md":
        raise StepwellError(
            f"{path.name} is neither .md nor .html", help="use one of these suffixes"
        )
    before, start, rest = read_bytes(path).decode().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise StepwellError(f"{path} lacks the marks of the table: the lines {' and '.join(MARKS)}")
    text = "\n".join((before + start, *markdown(rows), end + after))
    write_atomically(path, text.encode())


def markdown(rows: Sequence[Row]) -> list[str]:
    """Return all tables of the report as lines of Markdown."""
    whole = [*rows, *either(rows)]
    parts = [passed(whole), kinds(whole), wholes(rows), distributions(rows), failures(rows)]
    for target in targets_of(rows):
        parts.append(ranked([row for row in rows if label(row) == target], target))
    return [line for part in parts for line in (*part, "")][:-1]


def label(row: Row) -> str:
    """Return the label of a row: the target, and the preparation of the model."""
    return row.target + ("" if row.variant == "as it is" else f", {row.variant}")


def targets_of(rows: Sequence[Row]) -> list[str]:
    """Return the labels of all rows, in order."""
    return sorted({label(row) for row in rows})


def table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table with a header and rows."""
    told = [[str(cell).replace("|", "/").replace("\n", " ") for cell in line] for line in lines]
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(line)} |" for line in told),
    ]


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent."""
    return f"{part / whole:.1%}" if whole else "–"


def passed(rows: Sequence[Row]) -> list[str]:
    """Return the table of pass rates by target and source."""
    found: list[Sequence[object]] = []
    for target in targets_of(rows):
        of_target = [row for row in rows if label(row) == target]
        for source in [*sorted({row.source for row in of_target}), "all"]:
            held = [row for row in of_target if source in (row.source, "all")]
            fit = [row for row in held if row.outcome not in UNFIT]
            counts = Counter(row.outcome for row in held)
            good, open_ = counts["right"], counts["not compared"]
            beyond = sum(row.is_beyond for row in held)
            ended = sum(counts[one] for one in OUTCOMES if one.startswith(("out of", "lost")))
            found.append(
                (target, source, len(held), len(fit), good, share(good, len(fit) - open_), open_,
                 counts["refused"], beyond, share(good, len(fit) - open_ - beyond),
                 sum(counts[one] for one in FAULTS), ended)
            )  # fmt: skip
    heads = ("target", "source", "entries", "torch exports", "lowered and right", "",
             "not compared", "refused", "of these beyond the target", "right of the others",
             "wrong, fault, crash", "out of time or memory")  # fmt: skip
    return table(heads, found)


def either(rows: Sequence[Row]) -> list[Row]:
    """Return the row of each model for TOSA's float profile, or for both profiles if it is not
    right.

    Ids and positions are integers, so a device that takes them implements both profiles.
    """
    floats, both = ({(r.model, r.variant): r for r in rows if r.target == t} for t in EITHER)
    chosen = {
        name: row if row.outcome == "right" else both.get(name, row) for name, row in floats.items()
    }
    return [replace(row, target=f"{EITHER[0]}, else +int") for row in {**both, **chosen}.values()]


def kinds(rows: Sequence[Row]) -> list[str]:
    """Return the rates of correct lowerings, among models that the target can express, by
    purpose.
    """
    targets = targets_of(rows)
    found: list[Sequence[object]] = []
    for kind in sorted({row.kind for row in rows}):
        cells: list[str] = []
        for target in targets:
            held = [row for row in rows if (row.kind, label(row)) == (kind, target)]
            fit = [row for row in held if _is_expected(row)]
            good = sum(row.outcome == "right" for row in fit)
            cells.append(f"{good} of {len(fit)}" if fit else "–")
        found.append((kind, *cells))
    return table(("lowered and right, of those with a form", *targets), found)


def _is_expected(row: Row) -> bool:
    """Whether a row counts as a result of stepwell, not of torch or of the model."""
    return row.outcome not in (*UNFIT, "not compared") and not row.is_beyond


def wholes(rows: Sequence[Row]) -> list[str]:
    """Return the table of XNNPACK programs that are a single delegate, by source."""
    made = [row for row in rows if row.target == "xnnpack" and row.delegates is not None]
    found: list[Sequence[object]] = []
    for source in [*sorted({row.source for row in made}), "all"]:
        held = [row for row in made if source in (row.source, "all")]
        if not held:
            continue
        whole = sum(row.delegates == 1 and not row.outside for row in held)
        but = sum(row.delegates == 1 and row.floats_outside == 0 for row in held)
        spread = Counter(str(row.delegates) if (row.delegates or 0) < 4 else "4+" for row in held)
        found.append(
            (source, len(held), share(whole, len(held)), share(but, len(held)),
             *(spread[count] for count in ("0", "1", "2", "3", "4+")))
        )  # fmt: skip
    heads = ("XNNPACK", "programs", "one delegate, nothing else",
             "one, and look-ups and integers",
             "0 delegates", "1", "2", "3", "4+")  # fmt: skip
    return table(heads, found)


def distributions(rows: Sequence[Row]) -> list[str]:
    """Return the table of times, memory and errors: median, 90th percentile, maximum."""
    columns: tuple[tuple[str, Callable[[Row], float | None], str], ...] = (
        ("lowering, CPU s", lambda row: row.lower_seconds, "{:.2f}"),
        ("emission, CPU s", lambda row: row.emit_seconds, "{:.3f}"),
        ("torch.export, CPU s", lambda row: row.export_seconds, "{:.2f}"),
        ("memory, MiB", lambda row: row.peak_bytes and row.peak_bytes / (1 << 20), "{:.0f}"),
        ("error", lambda row: row.error, "{:.0e}"),
    )
    found: list[Sequence[object]] = []
    for target in targets_of(rows):
        cells: list[str] = []
        for _, value, form in columns:
            held = sorted(
                v for row in rows if label(row) == target and (v := value(row)) is not None
            )
            chosen = (
                (statistics.median(held), held[int(0.9 * (len(held) - 1))], held[-1])
                if held
                else ()
            )
            cells.append(" / ".join(form.format(number) for number in chosen) or "–")
        found.append((target, *cells))
    return table(("median / 90 % / most", *(name for name, _, _ in columns)), found)


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table of wrong results, aborted processes and exceptions."""
    bad = [row for row in rows if row.outcome in FAULTS]
    if not bad:
        return ["No result is wrong, no process was aborted, no exception but ours was raised."]
    return table(
        ("must not be", "target", "", ""),
        ((row.model, label(row), row.outcome, (row.note.strip().splitlines() or [""])[-1][:200])
         for row in bad),
    )  # fmt: skip


def general(reason: str) -> str:
    """Return a sentence without the numbers of one model."""
    return re.sub(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])", "N", reason)


def ranked(rows: Sequence[Row], target: str) -> list[str]:
    """Return the reasons, sorted by the number of models that each one leaves incomplete."""
    appears: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for row in rows:
        if row.outcome != "refused" and not row.outside:
            continue
        said = {general(reason) for reason, _ in row.reasons}
        appears.update(said)
        if len(said) == 1:
            alone.update(said)
    if not appears:
        return [f"On {target}, nothing is refused or left outside."]
    most = sorted(appears, key=lambda reason: (-alone[reason], -appears[reason], reason))[:REASONS]
    heads = (f"{target}: what is refused or left outside, and why", "only reason", "models")
    return table(heads, ((reason, alone[reason], appears[reason]) for reason in most))


def page(rows: Sequence[Row]) -> str:
    """Return one self-contained HTML page: a line for each row, filters, and reasons to unfold."""
    text = (files("stepwell.model_zoo.sweep") / "page.html").read_text(encoding="utf-8")
    held = [
        {
            "model": row.model,
            "kind": row.kind,
            "target": label(row),
            "outcome": row.outcome,
            "counts": ""
            if row.delegates is None
            else f"{row.delegates}/{sum(row.outside.values())}",
            "error": row.error,
            "seconds": row.lower_seconds,
            "size": row.size,
            "reasons": row.reasons,
            "note": row.note,
            "command": f"stepwell explain {row.model} -t {row.target}",
        }
        for row in rows
    ]
    return text.replace("/*ROWS*/[]", embedded(held))
