"""Run random programs of the second generator on each target, and print the results.

    python tools/strange.py --programs 1000 xnnpack cortex-m55
    python tools/strange.py --seed 17 xnnpack          # one program, its text, its verdict
    python tools/strange.py --programs 1000 --table docs/contracts.md xnnpack

A row counts the programs that the target accepted and the failures. Refused parts are removed from
a program and counted separately, with the reason. Failures are results outside the error bounds of
the arithmetic, aborts, tracebacks, run-time errors after a lowering without a message, and endless
runs. `as stock` are results whose class (NaN, an infinity) differs from eager's but equals that of
ExecuTorch's own flow.
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

from bench._report import between_markers
from tests.random_programs.judging import Judge, signature
from tests.random_programs.source import Program
from tests.random_programs.verdicts import BAD, LANES, TAKEN


def main() -> None:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lanes", nargs="*", default=list(LANES), metavar="TARGET")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this program alone, with its text")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each target")
    parser.add_argument("--reasons", type=int, default=10, help="refusals to list")
    parser.add_argument("--findings", type=Path, help="a file for failures, as JSON lines")
    parser.add_argument("--shrink", action="store_true", help="reduce findings")
    parser.add_argument("--table", type=Path, help="a document to write the rows into")
    given = parser.parse_args()
    rows: list[str] = []
    with Judge() as judge:
        for lane in given.lanes:
            if given.seed is not None:
                found = judge.seed(given.seed, lane)
                show(found, judge, lane, given)
                continue
            rows.append(run(judge, lane, given))
            if given.table:
                enter(given.table, lane, rows[-1])
    if rows:
        print("\n" + "\n".join([*HEAD, *rows]))


HEAD = [
    "| target | seeds | taken | of these as stock | refused whole | parts refused | "
    + " | ".join(BAD)
    + " |",
    "|---" * (6 + len(BAD)) + "|",
]


def enter(document: Path, lane: str, row: str) -> None:
    """Write a target's row into the table of a document; other rows are kept."""
    lines = document.read_text(encoding="utf-8").partition("<!-- strange -->")[2].splitlines()
    held = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    held[lane] = row
    between_markers(document, "strange", [*HEAD, *(held[name] for name in LANES if name in held)])


def run(judge: Judge, lane: str, given: argparse.Namespace) -> str:
    """Judge seeds until enough programs were accepted, and return a row of the table."""
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    parts, started, seed = 0, time.monotonic(), given.first
    seen: set[tuple[str, str]] = set()
    while sum(kinds[k] for k in TAKEN) < given.programs:
        if time.monotonic() - started > given.seconds:
            break
        found = judge.seed(seed, lane)
        kinds[found["kind"]] += 1
        parts += len(found["refusals"])
        reasons.update(plain(reason) for reason in found["refusals"])
        if found["kind"] in BAD:
            found |= {"seed": seed, "lane": lane}
            kind = signature(found)
            if given.shrink and kind not in seen and found["kind"] != "hang" and "program" in found:
                small = judge.shrink(Program.of_json(found["program"]), lane, found)
                again = judge.ask(program=small.as_json(), lane=lane)
                found |= {"said": again["said"], "text": small.text}
            seen.add(kind)
            print(f"{lane} seed {seed}: {found['kind']}: {found['said'][:300]}", flush=True)
            if given.findings:
                with given.findings.open("a") as file:
                    file.write(json.dumps(found) + "\n")
        seed += 1
        if seed % 100 == 0:
            print(f"{lane}: {seed} seeds, {time.monotonic() - started:.0f} s", file=sys.stderr)
    taken = sum(kinds[k] for k in TAKEN)
    print(f"\n{lane}: seeds {given.first} to {seed - 1}, {dict(kinds)}")
    for reason, count in reasons.most_common(given.reasons):
        print(f"  {count:5} {reason[:160]}")
    bad = " | ".join(str(kinds[k]) for k in BAD)
    counts = f"{taken} | {kinds['as stock']} | {kinds['refused']} | {parts}"
    return f"| {lane} | {given.first} to {seed - 1} | {counts} | {bad} |"


def plain(reason: str) -> str:
    """Return a refusal without the numbers of one program."""
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", reason)


def show(found: dict[str, Any], judge: Judge, lane: str, given: argparse.Namespace) -> None:
    """Print one program with its verdict."""
    text = found["text"]
    if given.shrink and found["kind"] in BAD:
        text = judge.shrink(Program.of_json(found["program"]), lane, found).text
    print(text)
    print(found["kind"], found["said"], *found["refusals"], sep="\n")


if __name__ == "__main__":
    main()
