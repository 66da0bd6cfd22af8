"""`stepwell prove [RULE…]`: prove rules by a solver."""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from stepwell.cli.terminal.outcome import Outcome
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.validation.rules.hashes import hash_of, whole_hash_of
from stepwell.validation.rules.kept_verdicts import (
    CONDITIONS,
    Dropped,
    is_of_this_prover,
    keep,
    keep_conditions,
    known_conditions,
    with_table,
)
from stepwell.validation.rules.kept_verdicts import known as stored
from stepwell.validation.rules.running import FAILED, LATE, prove_each, without_conditions
from stepwell.validation.rules.verdicts import SAID, Verdict, rules


def run(arguments: argparse.Namespace) -> Outcome:
    """Print the verdict on each rule; return 1 if a rule is refuted, or the prover itself fails."""
    known = rules()
    unknown = [name for name in arguments.rules if name not in known]
    if unknown:
        raise StepwellError(
            f"there is no rule {unknown[0]!r}",
            help="`stepwell prove` without names proves all rules",
        )
    verdicts: list[Verdict] = []
    files: list[Path] = []
    names = list(arguments.rules or known)
    texts = {name: hash_of(rewrite) for name, rewrite in known.items()}
    if arguments.guards:
        return _guards(arguments, names, {n: whole_hash_of(r) for n, r in known.items()})
    held = {
        name: verdict
        for name in names
        if (verdict := stored().get(texts[name])) is not None and verdict.is_proved
    }
    is_new = arguments.new and is_of_this_prover()
    asked = [name for name in names if name not in held] if is_new else names
    proved = prove_each(asked, arguments.jobs, arguments.seconds)
    for name in names:
        verdict = next(proved) if name in asked else replace(held[name], rule=name)
        verdicts.append(verdict)
        print(f"{name:40} {verdict} ({verdict.seconds:.1f} s)", flush=True)
        if verdict.counterexample is not None:
            print(verdict.counterexample.as_program(), flush=True)
        if verdict.counterexample is not None and arguments.tests:
            arguments.tests.mkdir(parents=True, exist_ok=True)
            file = arguments.tests / f"test_{name.replace('-', '_').replace('.', '_')}.py"
            write_atomically(file, verdict.counterexample.as_test(name).encode())
            files.append(file)
    counted = Counter(SAID[verdict.kind] for verdict in verdicts)
    for said, count in counted.items():
        print(f"{count:4} {said}")
    every = {name: stored()[text] for name, text in texts.items() if text in stored()}
    is_none = (LATE, FAILED)
    every |= {v.rule: v for v in verdicts if not v.reason.startswith(is_none)}
    rows = [replace(every[name], rule=name) for name in known if name in every]
    if arguments.keep:
        keep(rows)
    files += _tabled(arguments.table, rows, known_conditions())
    told = [{**vars(v), "counterexample": str(v.counterexample or "")} for v in verdicts]
    result = {"verdicts": told, "counts": counted}
    failed = any(verdict.reason.startswith(FAILED) for verdict in verdicts)
    return Outcome(result, files, 1 if counted["refuted"] or failed else 0)


def _guards(arguments: argparse.Namespace, names: list[str], texts: dict[str, str]) -> Outcome:
    """Print verdicts on each rule without each of its conditions; stored verdicts are reused."""
    kept: dict[str, list[Dropped]] = {}
    for row in known_conditions():
        if texts.get(row.rule) == row.hash:
            kept.setdefault(row.rule, []).append(row)
    is_new = arguments.new and is_of_this_prover(CONDITIONS)
    asked = [name for name in names if not (is_new and name in kept)]
    shown: list[Dropped] = []
    for name, rows in zip(
        asked, without_conditions(asked, arguments.jobs, arguments.seconds), strict=True
    ):
        if not (rows and rows[0].reason.startswith((LATE, FAILED))):
            kept[name] = rows
        for row in rows:
            print(f"{name:40} without {row.condition}: {row}", flush=True)
        shown += rows
        if arguments.keep:
            keep_conditions(row for each in texts for row in kept.get(each, ()))
    rows = [row for each in texts for row in kept.get(each, ())]
    counted = Counter(row.kind for row in (rows if arguments.new else shown))
    print(", ".join(f"{count} {kind}" for kind, count in counted.items()) or "no conditions")
    of_now = (hash_of(rewrite) for rewrite in rules().values())
    files = _tabled(arguments.table, [stored()[text] for text in of_now if text in stored()], rows)
    return Outcome({"guards": [vars(row) for row in shown], "counts": counted}, files, 0)


def _tabled(table: Path | None, verdicts: list[Verdict], rows: list[Dropped]) -> list[Path]:
    """Write the verdicts into the tables of a page, if one is named; return the written files."""
    if table is None:
        return []
    write_atomically(table, with_table(table.read_text(), verdicts, rows).encode())
    return [table]
