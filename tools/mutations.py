"""Mutate programs by proved rules, in both directions; all variants must agree with eager.

    python -m tools.mutations --count 2000 --state RESULTS.jsonl            # six targets
    python -m tools.mutations --count 100 --flows xnnpack-int8 --state RESULTS.jsonl
    python -m tools.mutations --seed 17 --flows xnnpack                     # one, with its text
    python -m tools.mutations --count 0 --state RESULTS.jsonl               # what there is

A seed selects a small program or a model of the examples, and up to six mutations: a proved rule, a
direction, a place. Each flow (`tools/mutating/flows.py`; by default the interpreter and stepwell's
targets, in float32 and in int8) runs the variant, and the result is compared with eager. A run
continues from the rows in its file. A difference is reproduced with fewer mutations, then with
fewer operators, and printed with its text.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tools.mutating.flows import FLOWS
from tools.mutating.programs import Case, case, name_of
from tools.mutating.steps import MOST_STEPS, mutated
from torch import Tensor

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.reducer.reduce import Reproducer, reduce
from stepwell.validation.reducer.reproducer import Header

INTEGER_UNITS = 4
"""For a quantized result: the number of roundings that go the other way, one per layer."""


def apart(result: Tensor, of: Case, steps: int) -> str | None:
    """Return the difference if it exceeds what this number of mutations may change."""
    wanted = of.wanted
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return f"{result.dtype}{list(result.shape)} is not {wanted.dtype}{list(wanted.shape)}"
    allowed = of.unit * steps
    worst = float((result - wanted).abs().max())
    return None if worst <= allowed else f"off by {worst:.3g}, of {allowed:.3g} allowed"


def verdict_on(flow: str, program: Any, of: Case, steps: int) -> str:
    """Return `agrees`, or the result of a program."""
    kind = FLOWS[flow].kind
    try:
        result = FLOWS[flow].run(program, of.inputs)
    except Exception as error:  # Other tools raise any class.
        text = str(error).splitlines()[0] if str(error) else ""
        refused = isinstance(error, StepwellError)
        return f"{'refused' if refused else 'failed'}: {type(error).__name__}: {text}"
    return apart(result, of, steps + 1 if kind == "float32" else INTEGER_UNITS) or "agrees"


def judged(flow: str, seed: int, left_out: frozenset[int] = frozenset()) -> str:
    """Return `agrees`, or the result of the variant of a seed."""
    kind = FLOWS[flow].kind
    program, steps = mutated(kind, seed, left_out)
    if not steps:
        return "no step"
    return verdict_on(flow, program, case(kind, name_of(kind, seed)), len(steps))


def _kind(verdict: str) -> str:
    return verdict.split(" ")[0]


def reduced(flow: str, seed: int, verdict: str) -> tuple[Any, tuple[str, ...]]:
    """Return a variant with the fewest mutations that show the same kind of verdict; none if it
    needs none.
    """
    left_out, kind = frozenset[int](), FLOWS[flow].kind
    for at in range(MOST_STEPS):
        fewer = left_out | {at}
        program, steps = mutated(kind, seed, fewer)
        of = case(kind, name_of(kind, seed))
        if _kind(verdict_on(flow, program, of, len(steps))) == _kind(verdict):
            left_out = fewer
    return mutated(kind, seed, left_out)


def smallest(flow: str, program: Any, verdict: str) -> Any:
    """Return the smallest part of a program that the flow gets wrong in the same way."""
    what = _kind(verdict)

    def interesting(part: Any) -> bool:
        func = part.method()
        given = [torch.randn(argument.type.get_shape()) for argument in func.body.block.args]
        wanted = part.run(*given)[0]
        largest = float(wanted.abs().max())
        unit = largest / 127 if "int8" in FLOWS[flow].kind else 1e-4 * largest
        of = Case("part", part, tuple(given), wanted, unit)
        return largest > 0 and _kind(verdict_on(flow, part, of, 1)) == what

    try:
        return reduce(Reproducer(program, Header("")), interesting).reproducer.program
    except Exception:  # A program that cannot be cut is reported whole.
        return program


def waiting(given: argparse.Namespace, rows: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield what remains to be judged, seed by seed, until each flow has the requested number of
    variants.
    """
    if given.seed is not None:
        yield from ((flow, given.seed) for flow in given.flows)
        return
    by_kind = sorted(given.flows, key=lambda flow: FLOWS[flow].kind)
    there = {(row["flow"], row["seed"]) for row in rows}
    for seed in itertools.count(given.start):
        counts = Counter(row["flow"] for row in rows if row["verdict"] != "no step")
        left = [flow for flow in by_kind if counts[flow] < given.count]
        if not left:
            return
        yield from ((flow, seed) for flow in left if (flow, seed) not in there)


def main() -> None:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flows", nargs="*", default=list(FLOWS), choices=list(FLOWS))
    parser.add_argument("--count", type=int, default=2000, help="variants of each flow")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one alone, with its text")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--state", type=Path, help="a file of results, from which a run continues")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows: list[dict[str, Any]] = []
    if given.state and given.state.exists():
        rows = [json.loads(line) for line in given.state.read_text().splitlines()]
    begun = time.monotonic()
    for flow, seed in waiting(given, rows):
        if time.monotonic() - begun > given.seconds:
            break
        verdict = judged(flow, seed)
        row: dict[str, Any] = {"flow": flow, "seed": seed, "verdict": verdict}
        if verdict != "no step":
            text = str(mutated(FLOWS[flow].kind, seed)[0])
            row["text"] = hashlib.sha256(text.encode()).hexdigest()[:12]
        if verdict not in ("agrees", "no step") or given.seed is not None:
            tell(flow, seed, row, rows)
        rows.append(row)
        if given.state:
            with given.state.open("a") as file:
                file.write(json.dumps(row) + "\n")
    for flow in dict.fromkeys(row["flow"] for row in rows):
        kinds = Counter(_kind(row["verdict"]) for row in rows if row["flow"] == flow)
        texts = len({row["text"] for row in rows if row["flow"] == flow and "text" in row})
        print(
            f"{flow}: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}; {texts} texts"
        )


def tell(flow: str, seed: int, row: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Reduce a difference unless a similar case is known; print it, and record its mutations and
    ops.
    """
    verdict, kind = row["verdict"], FLOWS[flow].kind
    row["program"] = name_of(kind, seed)
    likewise = (flow, row["program"], verdict.split(" off ")[0][:60])
    print(f"{flow} {seed} ({row['program']}): {verdict}", flush=True)
    if verdict not in ("agrees", "no step") and any(
        (r["flow"], r.get("program"), r["verdict"].split(" off ")[0][:60]) == likewise for r in rows
    ):
        return
    program, steps = reduced(flow, seed, verdict)
    row["steps"] = list(steps)
    if verdict not in ("agrees", "no step"):
        program = smallest(flow, program, verdict)
    ops = program.method().body.block.ops
    row["ops"] = [op.name for op in ops if not isinstance(op, WeightOp)]
    print("  " + "\n  ".join(steps) + f"\n{program}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
