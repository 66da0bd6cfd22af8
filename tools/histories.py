"""Run the stateful tests on each target, and print the results.

    python tools/histories.py --programs 1000 --state RESULTS.json xnnpack "tosa fp"
    python tools/histories.py --seed 17 --shrink xnnpack      # one program, its text, its verdict
    python tools/histories.py --state RESULTS.json --programs 0 --table docs/contracts.md

A run continues from the results in its file: seeds that were judged are not judged again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._report import between_markers
from tests.random_programs.judging import Judge, signature
from tests.random_programs.verdicts import BAD, TAKEN
from tests.stateful.drawing import smaller
from tests.stateful.source import Program
from tests.stateful.verdicts import LANES
from tools.strange import plain

CHILD = "tests.stateful.child"
HEAD = [
    "| target | seeds | taken | refused whole | parts refused | " + " | ".join(BAD) + " |",
    "|---" * (5 + len(BAD)) + "|",
]


def main() -> None:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lanes", nargs="*", default=list(LANES), metavar="TARGET")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="this program alone, with its text")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each target")
    parser.add_argument("--again", action="store_true", help="judge failures of earlier runs again")
    parser.add_argument("--shrink", action="store_true", help="reduce a finding")
    parser.add_argument("--state", type=Path, help="a file of results, from which a run continues")
    parser.add_argument("--table", type=Path, help="a document to write the rows into")
    given = parser.parse_args()
    held: dict[str, dict[str, Any]] = {}
    if given.state and given.state.exists():
        held = json.loads(given.state.read_text(encoding="utf-8"))
    with Judge(by=CHILD) as judge:
        for lane in given.lanes:
            if given.seed is not None:
                show(judge, given.seed, lane, given.shrink)
                continue
            found = held.setdefault(lane, {})
            if given.again:
                held[lane] = found = {s: v for s, v in found.items() if v["kind"] not in BAD}
            run(judge, lane, found, given, lambda: keep(given.state, held))
    if given.seed is not None:
        return
    rows = [row(lane, held[lane]) for lane in LANES if lane in held]
    print("\n" + "\n".join([*HEAD, *rows]))
    if given.table:
        between_markers(given.table, "histories", [*HEAD, *rows])


def keep(path: Path | None, held: dict[str, Any]) -> None:
    """Write the file of results."""
    if path is not None:
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(held), encoding="utf-8")
        beside.replace(path)


def run(judge: Judge, lane: str, found: dict[str, Any], given: Any, save: Any) -> None:
    """Judge seeds until enough programs were accepted."""
    started, seed, fresh = time.monotonic(), 0, 0
    while True:
        taken = sum(v["kind"] in TAKEN for s, v in found.items() if int(s) < seed)
        if taken >= given.programs or time.monotonic() - started > given.seconds:
            break
        if str(seed) not in found:
            verdict = judge.seed(seed, lane)
            found[str(seed)] = {key: verdict[key] for key in ("kind", "said", "refusals")}
            fresh += 1
            if verdict["kind"] in BAD:
                print(f"{lane} seed {seed}: {verdict['kind']}: {verdict['said'][:300]}", flush=True)
            if fresh % 20 == 0:
                save()
        seed += 1
    save()
    reasons = Counter(plain(reason) for v in found.values() for reason in v["refusals"])
    print(f"\n{lane}: {dict(Counter(v['kind'] for v in found.values()))}")
    for reason, count in reasons.most_common(10):
        print(f"  {count:5} {reason[:160]}")


def row(lane: str, found: dict[str, Any]) -> str:
    """Format a row of the table."""
    kinds = Counter(v["kind"] for v in found.values())
    taken = sum(kinds[k] for k in TAKEN)
    parts = sum(len(v["refusals"]) for v in found.values())
    bad = " | ".join(str(kinds[k]) for k in BAD)
    return f"| {lane} | {len(found)} | {taken} | {kinds['refused']} | {parts} | {bad} |"


def show(judge: Judge, seed: int, lane: str, shrink: bool) -> None:
    """Print one program with its verdict."""
    found = judge.seed(seed, lane)
    program = Program.of_json(found["program"])
    while shrink and found["kind"] in BAD:
        for less in smaller(program):
            again = judge.ask(program=less.as_json(), lane=lane)
            if signature(again) == signature(found):
                program = less
                break
        else:
            break
    print(program.text, program.shape, program.limits, *program.calls, sep="\n")
    print(found["kind"], found["said"], *found["refusals"], sep="\n")


if __name__ == "__main__":
    main()
