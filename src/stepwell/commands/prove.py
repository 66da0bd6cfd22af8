"""`stepwell prove [RULE…]`: what a solver says of the rules that are their own text."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.outside.files import write_atomically
from stepwell.terminal.outcome import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("rules", nargs="*", metavar="RULE", help="names of rules (all)")
    parser.add_argument("--guards", action="store_true", help="drop each condition in turn")
    parser.add_argument("--tests", type=Path, metavar="FOLDER", help="counterexamples as tests")
    parser.add_argument(
        "--keep", action="store_true", help="keep the verdicts, by which certificates are made"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="rules at once (as many as there are cores)"
    )
    parser.add_argument("--new", action="store_true", help="only rules of which no proof is kept")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a page's table anew")


def run(arguments: argparse.Namespace) -> Outcome:
    """Print a verdict a rule; 1 if one is refuted."""
    from stepwell.proving.known import keep
    from stepwell.proving.known import known as kept
    from stepwell.proving.running import prove_each, without_conditions
    from stepwell.proving.verdicts import SAID, Verdict, hash_of, rules

    known = rules()
    unknown = [name for name in arguments.rules if name not in known]
    if unknown:
        raise StepwellError(
            f"there is no rule {unknown[0]!r}", help="`stepwell prove` without names proves all"
        )
    verdicts: list[Verdict] = []
    without: list[dict[str, str]] = []
    files: list[Path] = []
    names = list(arguments.rules or known)
    if arguments.guards:
        for name, dropped in without_conditions(names, arguments.jobs):
            for condition, found in dropped:
                said = f"{'right' if found.is_right else 'OPEN '} {found}"
                print(f"{name:40} without {condition}: {said}", flush=True)
                without.append({"rule": name, "without": condition, "found": said})
        right = sum(row["found"].startswith("right") for row in without)
        print(f"{right} of {len(without)} conditions are needed, or hold what their label says")
        return Outcome({"guards": without}, files, 0)
    texts = {name: hash_of(rewrite.rule) for name, rewrite in known.items()}
    held = {
        name: verdict
        for name in names
        if (verdict := kept().get(texts[name])) is not None and verdict.is_proved
    }
    asked = [name for name in names if name not in held] if arguments.new else names
    proved = prove_each(asked, arguments.jobs)
    for name in names:
        verdict = next(proved) if name in asked else replace(held[name], rule=name)
        verdicts.append(verdict)
        print(f"{name:40} {verdict} ({verdict.seconds:.1f} s)", flush=True)
        if verdict.counterexample is not None and arguments.tests:
            arguments.tests.mkdir(parents=True, exist_ok=True)
            file = arguments.tests / f"test_{name.replace('-', '_').replace('.', '_')}.py"
            write_atomically(file, verdict.counterexample.as_test(name).encode())
            files.append(file)
    counted = Counter(SAID[verdict.kind] for verdict in verdicts)
    for said, count in counted.items():
        print(f"{count:4} {said}")
    every = {name: kept()[text] for name, text in texts.items() if text in kept()}
    every |= {verdict.rule: verdict for verdict in verdicts}
    rows = [replace(every[name], rule=name) for name in known if name in every]
    if arguments.keep:
        keep(rows)
    if arguments.table:
        from stepwell.proving.page import with_table

        page = with_table(arguments.table.read_text(), rows)
        write_atomically(arguments.table, page.encode())
        files.append(arguments.table)
    told = [{**vars(v), "counterexample": str(v.counterexample or "")} for v in verdicts]
    result = {"verdicts": told, "counts": counted, "guards": without}
    return Outcome(result, files, 1 if counted["refuted"] else 0)
