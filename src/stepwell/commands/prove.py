"""`stepwell prove [RULE…]`: what a solver says of the rules that are their own text."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from stepwell.commands.outcome import Outcome
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.files import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("rules", nargs="*", metavar="RULE", help="names of rules (all)")
    parser.add_argument("--guards", action="store_true", help="drop each condition in turn")
    parser.add_argument("--tests", type=Path, metavar="FOLDER", help="counterexamples as tests")
    parser.add_argument(
        "--keep", action="store_true", help="keep the verdicts, by which certificates are made"
    )
    parser.add_argument("--new", action="store_true", help="only rules of which none is kept")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a page's table anew")


def run(arguments: argparse.Namespace) -> Outcome:
    """Print a verdict a rule; 1 if one is refuted."""
    from stepwell.proving.guards import without_each
    from stepwell.proving.known import keep
    from stepwell.proving.known import known as kept
    from stepwell.proving.verdicts import SAID, Verdict, hash_of, prove, rules

    known = rules()
    unknown = [name for name in arguments.rules if name not in known]
    if unknown:
        raise StepwellError(
            f"there is no rule {unknown[0]!r}", help="`stepwell prove` without names proves all"
        )
    verdicts: list[Verdict] = []
    without: list[dict[str, str]] = []
    files: list[Path] = []
    for name in arguments.rules or known:
        if arguments.guards:
            for condition, found in without_each(known[name]):
                print(f"{name:40} without {condition}: {found}", flush=True)
                without.append({"rule": name, "without": str(condition), "found": str(found)})
            continue
        held = kept().get(hash_of(known[name].rule)) if arguments.new else None
        verdict = replace(held or prove(known[name]), rule=name)
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
    if arguments.keep:
        keep(verdicts)
    if arguments.table:
        from stepwell.proving.page import with_table

        page = with_table(arguments.table.read_text(), verdicts)
        write_atomically(arguments.table, page.encode())
        files.append(arguments.table)
    told = [{**vars(v), "counterexample": str(v.counterexample or "")} for v in verdicts]
    result = {"verdicts": told, "counts": counted, "guards": without}
    return Outcome(result, files, 1 if counted["refuted"] else 0)
