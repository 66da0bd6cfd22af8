"""Run random programs on each target, and print the results.

    python tools/random_programs.py --programs 1000 xnnpack cortex-m55
    python tools/random_programs.py --seed 17 --shrink xnnpack      # one program, its verdict
    python tools/random_programs.py --profile stateful --state FILE.json --table docs/contracts.md

Programs are those of `tests/random_programs`, by the profile: `functional` programs are called
once; `stateful` ones have caches, streams, several methods and several calls. A row counts the
programs that the target accepted and the failures. Refused statements are removed from a program
and counted separately, with the reason. Failures are results outside the error bounds of the
arithmetic, aborts, tracebacks, run-time errors after a lowering without a message, and endless
runs. `as stock` are results whose class (NaN, an infinity) differs from eager's but equals that of
ExecuTorch's own flow. With `--state` verdicts are kept, and a run continues from them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._report import between_markers, keep_rows, kept_rows
from tests.random_programs.judging import Judge, signature
from tests.random_programs.profiles import PROFILES
from tests.random_programs.source import Program
from tests.random_programs.verdicts import BAD, TAKEN

Verdict = dict[str, Any]
KEPT = ("kind", "said", "refusals")


def main() -> None:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lanes", nargs="*", metavar="TARGET")
    parser.add_argument("--profile", choices=PROFILES, default="functional")
    parser.add_argument("--programs", type=int, default=1000, help="accepted ones, each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this program alone, with its text")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each target")
    parser.add_argument("--reasons", type=int, default=10, help="refusals to list")
    parser.add_argument("--findings", type=Path, help="a file for failures, as JSON lines")
    parser.add_argument("--shrink", action="store_true", help="reduce findings")
    parser.add_argument("--state", type=Path, help="a file of verdicts, from which a run continues")
    parser.add_argument("--again", action="store_true", help="judge failures in the file again")
    parser.add_argument("--table", type=Path, help="a document to write the rows into")
    given = parser.parse_args()
    known = list(PROFILES[given.profile])
    rows: dict[str, str] = {}
    kept: dict[str, dict[str, Verdict]] = kept_rows(given.state)
    with Judge() as judge:
        for target in given.lanes or known:
            lane = f"{given.profile}: {target}"
            if given.seed is not None:
                show(judge, given, lane)
                continue
            found = kept.setdefault(target, {})
            if given.again:
                kept[target] = found = {s: v for s, v in found.items() if v["kind"] not in BAD}
            run(judge, given, lane, found, kept)
            rows[target] = row(target, found)
    if not rows:
        return
    print("\n" + "\n".join([HEAD, *rows.values()]))
    if given.table:
        enter(given.table, rows, known, given.profile)


COLUMNS = ("target", "seeds", "taken", "of these as stock", "refused whole", "parts refused", *BAD)
"""The columns of the table."""
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def row(target: str, found: dict[str, Verdict]) -> str:
    """A target's row of the table."""
    kinds = Counter(verdict["kind"] for verdict in found.values())
    seeds = sorted(map(int, found))
    cells: list[Any] = [target, f"{seeds[0]} to {seeds[-1]}", sum(kinds[kind] for kind in TAKEN)]
    cells += [kinds["as stock"], kinds["refused"]]
    cells += [sum(len(verdict["refusals"]) for verdict in found.values())]
    return f"| {' | '.join(map(str, [*cells, *(kinds[kind] for kind in BAD)]))} |"


def enter(document: Path, rows: dict[str, str], known: list[str], profile: str) -> None:
    """Write rows into the table of a document; its other rows are kept."""
    name = {"functional": "random"}.get(profile, profile) + " programs"
    text = document.read_text(encoding="utf-8").partition(f"<!-- {name} -->")[2]
    lines = text.partition(f"<!-- /{name} -->")[0].splitlines()
    held = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")} | rows
    between_markers(document, name, [*HEAD.split("\n"), *(held[k] for k in known if k in held)])


def run(
    judge: Judge,
    given: argparse.Namespace,
    lane: str,
    found: dict[str, Verdict],
    kept: dict[str, dict[str, Verdict]],
) -> None:
    """Judge seeds until enough programs were accepted."""
    started, seed, taken = time.monotonic(), given.first, 0
    seen: set[tuple[str, str]] = set()
    while taken < given.programs and time.monotonic() - started < given.seconds:
        if str(seed) not in found:
            verdict = judge.seed(seed, lane)
            if verdict["kind"] in BAD:
                report(judge, given, lane, seed, verdict, seen)
            found[str(seed)] = {key: verdict[key] for key in KEPT}
            if len(found) % 20 == 0:
                keep_rows(given.state, kept)
        taken += found[str(seed)]["kind"] in TAKEN
        seed += 1
        if seed % 100 == 0:
            print(f"{lane}: {seed} seeds, {time.monotonic() - started:.0f} s", file=sys.stderr)
    keep_rows(given.state, kept)
    reasons = Counter(plain(reason) for verdict in found.values() for reason in verdict["refusals"])
    print(f"\n{lane}: {dict(Counter(verdict['kind'] for verdict in found.values()))}")
    for reason, count in reasons.most_common(given.reasons):
        print(f"  {count:5} {reason[:160]}")


def report(
    judge: Judge,
    given: argparse.Namespace,
    lane: str,
    seed: int,
    verdict: Verdict,
    seen: set[tuple[str, str]],
) -> None:
    """Print a failure; reduce the first of each signature if that is requested."""
    verdict |= {"seed": seed, "lane": lane}
    kind = signature(verdict)
    if given.shrink and kind not in seen and verdict["kind"] != "hang" and "program" in verdict:
        program = judge.shrink(Program.of_json(verdict["program"]), lane, verdict)
        again = judge.ask(program=program.as_json(), lane=lane)
        verdict |= {"said": again["said"], "text": program.text}
    seen.add(kind)
    print(f"{lane} seed {seed}: {verdict['kind']}: {verdict['said'][:300]}", flush=True)
    if given.findings:
        with given.findings.open("a") as file:
            file.write(json.dumps(verdict) + "\n")


def plain(reason: str) -> str:
    """Return a refusal without the numbers of one program."""
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", reason)


def show(judge: Judge, given: argparse.Namespace, lane: str) -> None:
    """Print one program with its verdict."""
    found = judge.seed(given.seed, lane)
    program = Program.of_json(found["program"])
    if given.shrink and found["kind"] in BAD:
        program = judge.shrink(program, lane, found)
    print(program.text)
    print(found["kind"], found["said"], *found["refusals"], sep="\n")


if __name__ == "__main__":
    main()
