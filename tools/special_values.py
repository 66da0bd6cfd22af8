"""Measure what XNNPACK's nodes do with special values on each family of CPUs.

    python tools/special_values.py            measure, and compare with the table checked in
    python tools/special_values.py --write    write the table and docs/special_values.md
    python tools/special_values.py -k avx2    only families in whose name this is found
    python tools/special_values.py --nodes sine    only such nodes

Each node becomes a delegate of its own, and runs on this machine, under `qemu-x86_64` as CPUs with
AVX2 or SSE alone, and on emulated Arm cores (`make arm64`). A unary node in f32 gets every number
whose lower 16 bits are zero, then every number between two of these where the class of the result
changes, numbers at random, and every number next to an end of a range of deviations. In f16 and
bf16 it gets every number; a binary node every pair of special values; other nodes one special value
at each place of an operand or weight among ordinary numbers. The reference is PyTorch.
Exit status 1 if a measured behavior differs from the table, or a family cannot be measured.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from special_numbers import (
    NAMES,
    ORDINARY,
    SPECIAL,
    Segment,
    at_places,
    classes,
    grid,
    lower_limit_of,
    merged,
    named,
    places_of,
    runs,
    special,
    text,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "numerics"))
from emulated import ROOT, in_process

TABLE = ROOT / "dialects" / "xnnpack" / "special_values.json"
CPUS: dict[str, str | None] = {
    "xnnpack/sse": "qemu-x86_64 Nehalem",
    "xnnpack/avx": "qemu-x86_64 SandyBridge",
    "xnnpack/avx2": "qemu-x86_64 Haswell",
    "xnnpack/avx512": None,
    "xnnpack/neon": "cortex-a53",
    "xnnpack/neonfp16": "cortex-a76",
}
"""The CPU that stands for a family; None is this machine."""
DRAWN = 4
"""Blocks of random numbers that each unary node in f32 gets."""
BLOCK = 1 << 16
BEYOND = 16
"""Blocks of numbers that are tried next to an end of a range of deviations."""
ROUNDS = 12
"""How often ranges are extended by deviations that are found next to their ends."""
MOST = 24
"""Changes of a result's class between two coarse numbers that are looked at closely."""
Calls = list[tuple[int, list[torch.Tensor]]]


def runner_of(cpu: str | None, program: bytes) -> Callable[[Calls], list[torch.Tensor]]:
    """What runs calls of a program's methods on a CPU."""
    if cpu is not None and not cpu.startswith("qemu"):
        from stepwell.backends.executorch.running.runner import PteSession

        session = PteSession.load(program, cpu=cpu)
        return lambda calls: [session.run(*inputs, method=f"trial_{n}")[0] for n, inputs in calls]

    def run(calls: Calls) -> list[torch.Tensor]:
        named_calls = [(f"trial_{n}", inputs) for n, inputs in calls]
        return [results[0] for results in in_process(cpu, program, named_calls)]

    return run


def missing(cpu: str | None) -> str | None:
    """Why a CPU is not to be had here."""
    if cpu is None:
        flags = Path("/proc/cpuinfo").read_text() if platform.machine() == "x86_64" else ""
        return None if "avx512f" in flags else "this machine has no AVX-512"
    if cpu.startswith("qemu"):
        return None if shutil.which("qemu-x86_64") else "apt-get install qemu-user"
    from stepwell.backends.executorch.running.arm64 import missing as arm_missing

    return arm_missing(cpu)


NO_CANCELLATION = ("xnnpack.reciprocal_square_root",)
"""Nodes of which small results are compared as closely as others."""
KILLED = ("xnnpack.argmax_pooling_2d",)
"""Nodes whose kernel ends the process where a NaN or an infinity is an operand: a wild index."""
OF_PAIRS: dict[str, Any] = {
    "xnnpack.maximum": torch.maximum,
    "xnnpack.minimum": torch.minimum,
    "xnnpack.prelu": lambda a, b: torch.where(a > 0, a, a * b),
}
"""PyTorch's functions, where the interpreter's node has XNNPACK's choice on some CPU."""
EXPECTED: dict[Any, torch.Tensor] = {}
"""What the interpreter gave, by call: the same for every CPU."""

_FUNCTIONS: dict[str, Any] = {
    "copy": lambda x: x, "clamp": lambda x: x.clamp(-1.0, 1.0), "square": lambda x: x * x,
    "hardswish": lambda x: (x / 6) * (x + 3).clamp(0, 6),
    "leaky_relu": lambda x: torch.where(x < 0, x * torch.tensor(0.1).double(), x),
    "elu": lambda x: torch.where(x < 0, torch.tensor(0.7).double() * torch.expm1(x), x),
}  # fmt: skip


def function_of(node: str) -> Any:
    """Unary nodes as functions of float64 numbers; a result is rounded once."""
    from stepwell.dialects.xnnpack import NODES
    from stepwell.dialects.xnnpack.meaning.elementwise import torch_function

    short = node.removeprefix("xnnpack.").split()[0]
    if short == "convert":
        return lambda x: x
    return _FUNCTIONS.get(short) or torch_function(
        next(c for c in NODES.values() if c.name == f"xnnpack.{short}")
    )


def outcome(x: torch.Tensor, y: torch.Tensor, node: str) -> torch.Tensor:
    """Of each number: −1 where the engine's result is PyTorch's, else its class and PyTorch's."""
    wanted = function_of(node)(x.double())
    wanted = torch.where(
        wanted.abs() <= torch.finfo(y.dtype).max * 1.0001, wanted.to(y.dtype).double(), wanted
    ).to(y.dtype)
    ours, theirs = classes(y), classes(wanted)
    far = (
        y.double() - wanted.double()
    ).abs() > 0.02 * wanted.double().abs() + 1e-3 * wanted.double().abs().clamp(max=1)
    close = 0.0 if node in NO_CANCELLATION else 4e-3 if y.dtype == torch.float16 else 1e-4
    near = (ours == 6) & (theirs == 6) & (~far | ((y.double() - wanted.double()).abs() < close))
    same = (ours == theirs) & (ours != 6) | near
    return torch.where(same, -1, ours * 8 + theirs)


def unary(run: Any, items: list[tuple[int, dict[str, Any]]]) -> dict[str, dict[str, list[Any]]]:
    """Segments [low, high, result] of operands on which nodes deviate, by node and dtype."""
    large = [(n, a) for n, a in items if a["size"] > 5]
    xs = {n: grid(a["torch"]) for n, a in large}
    got = dict(zip(xs, run([(n, [x]) for n, x in xs.items()]), strict=True))
    found: dict[int, list[Segment]] = {}
    finer: list[tuple[int, int, torch.Tensor]] = []
    for n, about in large:
        kinds = outcome(xs[n], got[n], about["node"])
        found[n] = runs(xs[n], got[n], kinds)
        if about["dtype"] != "f32":
            continue
        key = kinds * 8 + classes(got[n])
        changes = (key[1:] != key[:-1]) & ~xs[n][1:].isnan() & ~xs[n][:-1].isnan()
        for i in changes.nonzero().flatten().tolist()[:MOST]:
            low, high = places_of(xs[n][i : i + 2]).tolist()
            if high - low <= 1 << 16:
                steps = torch.arange(low, low + (1 << 16))
                finer.append((n, i, at_places(steps, torch.float32)))
    fine = run([(n, [x]) for n, _, x in finer])
    for (n, _, x), y in zip(finer, fine, strict=True):
        node = next(a["node"] for m, a in large if m == n)
        found[n] += runs(x, y, outcome(x, y, node))
    try_more(run, [(n, a) for n, a in large if a["dtype"] == "f32"], found)
    tails = [(n, a, s) for n, a in items if a["size"] == 5 for s in (*SPECIAL, *ORDINARY)]
    inputs = [torch.full((5,), special(s, a["torch"]), dtype=a["torch"]) for _, a, s in tails]
    for (_, a, _), x, y in zip(
        tails, inputs, run([(t[0], [x]) for t, x in zip(tails, inputs, strict=True)]), strict=True
    ):
        owner = next(m for m, b in large if (b["node"], b["dtype"]) == (a["node"], a["dtype"]))
        found[owner] += runs(x, y, outcome(x, y, a["node"]))
    table: dict[str, dict[str, list[Any]]] = defaultdict(dict)
    for n, about in large:
        rows = merged(found[n], about["torch"], lower_limit_of(about["node"]))
        for row in rows:
            if row[0] != row[1] and row[3] not in (*NAMES, "any", "lower limit"):
                row[3] = least_and_greatest(run, n, about["torch"], float(row[0]), float(row[1]))
        table[about["node"]][about["dtype"]] = rows
    return table


def try_more(run: Any, nodes: list[tuple[int, Any]], found: dict[int, list[Segment]]) -> None:
    """Add deviations of random numbers, and of all numbers next to the ends of known ranges.

    Raises:
        RuntimeError: there are still deviations next to an end after the last round.
    """
    random = torch.Generator().manual_seed(7)
    largest = int(places_of(torch.tensor([math.inf])))
    numbers = torch.randint(-largest, largest, (len(nodes), DRAWN * BLOCK), generator=random)
    asked = [(n, a, drawn.sort().values) for (n, a), drawn in zip(nodes, numbers, strict=True)]
    tried: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for _ in range(ROUNDS):
        blocks = [
            (n, about, at_places(places, torch.float32))
            for n, about, listed in asked
            for places in listed.split(BLOCK)
        ]
        answers = run([(n, [x]) for n, _, x in blocks])
        for (n, about, x), y in zip(blocks, answers, strict=True):
            found[n] += runs(x, y, outcome(x, y, about["node"]))
        asked = []
        for n, about in nodes:
            rows = merged(found[n], torch.float32, math.nan)
            ends = {(row[at], 2 * at - 1) for row in rows if row[0] != row[1] for at in (0, 1)}
            for end, side in sorted(ends - tried[n]):
                steps = side * torch.arange(1, BEYOND * BLOCK + 1)
                beyond = places_of(torch.tensor([float(end)])) + steps
                asked.append((n, about, beyond.clamp(-largest, largest).sort().values))
            tried[n] |= ends
        if not asked:
            return
    raise RuntimeError(f"not settled: {sorted({about['node'] for _, about, _ in asked})}")


def least_and_greatest(run: Any, n: int, dtype: torch.dtype, low: float, high: float) -> str:
    """The least and the greatest result of every number between two."""
    first, last = places_of(torch.tensor([low, high], dtype=dtype)).tolist()
    blocks = (torch.arange(start, start + BLOCK) for start in range(first, last + 1, BLOCK))
    calls = [(n, [at_places(block.clamp(max=last), dtype)]) for block in blocks]
    numbers = torch.cat(run(calls))
    numbers = numbers[numbers.isfinite()]
    ends = dict.fromkeys(text(float(end)) for end in (numbers.min(), numbers.max()))
    return " to ".join(ends)


def binary(
    run: Any, items: list[tuple[int, dict[str, Any]]], trials: Any
) -> dict[str, dict[str, list[Any]]]:
    """[left, right, result] of pairs on which nodes deviate, by node and dtype."""
    from stepwell.ir.declared.interpretation import Interpreter

    names = [*SPECIAL, *ORDINARY]
    calls: Calls = []
    labels: list[tuple[int, dict[str, Any], str, str]] = []
    for n, about in items:
        for a in names:
            for b in names:
                pair = zip(trials[n].inputs, (a, b), strict=True)
                calls.append((n, [torch.full_like(t, special(s, about["torch"])) for t, s in pair]))
                labels.append((n, about, a, b))
    table: dict[str, dict[str, set[tuple[str, ...]]]] = defaultdict(lambda: defaultdict(set))
    for (n, about, a, b), (_, inputs), y in zip(labels, calls, run(calls), strict=True):
        key = (n, a, b)
        if key not in EXPECTED:
            if (by_torch := OF_PAIRS.get(about["node"])) is not None:
                EXPECTED[key] = by_torch(*inputs)
            else:
                body = trials[n].delegate.body
                (EXPECTED[key],) = Interpreter(trials[n].weights).run_region(body, inputs)
        wanted = EXPECTED[key]
        deviating = table[about["node"]][about["dtype"]]
        for ours, theirs, at in zip(
            classes(y).tolist(), classes(wanted).tolist(), range(67), strict=True
        ):
            far = abs(float(y[at]) - float(wanted[at])) > 0.02 * abs(float(wanted[at]))
            if ours != theirs or (ours == 6 and far):
                kept = (
                    "left"
                    if same(y[at], inputs[0].flatten()[0])
                    else "right"
                    if same(y[at], inputs[1].flatten()[0])
                    else named(float(y[at]), about["torch"], lower_limit_of(about["node"]))
                )
                deviating.add((f"of {a}", f"of {b}", NAMES[theirs], kept))
    return {
        node: {d: [list(row) for row in sorted(v)] for d, v in of.items()}
        for node, of in table.items()
    }


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two numbers have one class, sign and value."""
    return (bool(torch.equal(one, other)) and bool(one.signbit() == other.signbit())) or bool(
        one.isnan() & other.isnan()
    )


def of_several(
    run: Any, items: list[tuple[int, dict[str, Any]]], trials: Any
) -> dict[str, dict[str, list[Any]]]:
    """[operand, special value, expected, result]: what differs where one number is special."""
    from stepwell.ir.declared.interpretation import Interpreter

    calls: Calls = []
    labels: list[tuple[dict[str, Any], Any, int, str]] = []
    for n, about in items:
        for index, operand in enumerate(trials[n].inputs):
            for s in (*SPECIAL, "big", "-big"):
                if about["node"] in KILLED:
                    continue
                places = range(0, operand.numel(), max(1, operand.numel() // 11))
                for place in (*places, None):
                    inputs = [t.clone() for t in trials[n].inputs]
                    flat = inputs[index].view(-1)
                    flat[slice(None) if place is None else place] = special(s, operand.dtype)
                    calls.append((n, inputs))
                    labels.append((about, trials[n], index, s))
    table: dict[str, dict[str, set[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(set))
    answers = zip(labels, calls, run(calls), strict=True)
    for at, ((about, trial, index, s), (_, inputs), y) in enumerate(answers):
        if at not in EXPECTED:
            with torch.no_grad():
                made = Interpreter(trial.weights).run_region(trial.delegate.body, inputs)
            EXPECTED[at] = made[0]
        wanted = EXPECTED[at]
        found = table[about["node"]][about["dtype"]]
        ours, theirs = classes(y).flatten(), classes(wanted).flatten()
        for place in (ours != theirs).nonzero().flatten().tolist():
            found.add((index, s, NAMES[int(theirs[place])], NAMES[int(ours[place])]))
    for node in {about["node"] for _, about in items if about["node"] in KILLED}:
        table[node]["f32"] |= {(0, s, "finite", "nan") for s in ("nan", "inf", "-inf")}
    return {
        node: {d: [list(row) for row in sorted(v)] for d, v in of.items()}
        for node, of in table.items()
    }


def quantized(
    run: Any, items: list[tuple[int, dict[str, Any]]], trials: Any
) -> dict[str, dict[str, list[Any]]]:
    """[special value, expected, result] of stored integers that are not the interpreter's."""
    from stepwell.ir.declared.interpretation import Interpreter

    rows = [(n, a, s) for n, a in items for s in (*SPECIAL, "big", "-big")]
    calls = [
        (n, [torch.full_like(trials[n].inputs[0], special(s, a["torch"]))]) for n, a, s in rows
    ]
    table: dict[str, dict[str, set[tuple[str, ...]]]] = defaultdict(lambda: defaultdict(set))
    for (n, a, s), (_, inputs), y in zip(rows, calls, run(calls), strict=True):
        (wanted,) = Interpreter(trials[n].weights).run_region(trials[n].delegate.body, inputs)
        found = table[a["node"]][a["dtype"]]
        for theirs, ours in zip(wanted.tolist(), y.tolist(), strict=True):
            if theirs != ours:
                found.add((f"stored of {s}", str(theirs), str(ours)))
    return {
        node: {d: [list(row) for row in sorted(v)] for d, v in of.items()}
        for node, of in table.items()
    }


def measured(cpu: str | None, program: bytes, trials: Any, about: Any) -> dict[str, Any]:
    """Node → dtype → entries, on one CPU."""
    run = runner_of(cpu, program)
    items = list(enumerate(about))
    for number, entry in items:
        entry["torch"] = trials[number].inputs[0].dtype
        entry["size"] = trials[number].inputs[0].numel()

    def kind(name: str) -> list[tuple[int, dict[str, Any]]]:
        return [(n, a) for n, a in items if a["kind"] == name]

    return {
        **unary(run, kind("unary")),
        **binary(run, kind("binary"), trials),
        **of_several(run, kind("several"), trials),
        **quantized(run, kind("quantize"), trials),
    }


def main() -> int:
    """Measure every requested family."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "-k", default="", metavar="NAME", help="only families that this expression finds"
    )
    parser.add_argument("--nodes", default="", help="only nodes that this expression finds")
    parser.add_argument("--write", action="store_true", help="write the table and the page")
    options = parser.parse_args()
    from special_nodes import container_of, nodes

    from stepwell.backends.executorch.writing.serialize import to_bytes

    pairs = list(zip(*nodes(), strict=True))
    chosen = [(trial, of) for trial, of in pairs if re.search(options.nodes, of["node"])]
    trials, about = [trial for trial, _ in chosen], [of for _, of in chosen]
    program = to_bytes(container_of(trials))
    differing = False
    for family, cpu in CPUS.items():
        if not re.search(options.k, family):
            continue
        if (why := missing(cpu)) is not None:
            print(f"{family} on {cpu}: not measured: {why}")
            differing = True
            continue
        made = json.loads(json.dumps(measured(cpu, program, trials, about)))
        found = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        held = found.get(family, {})
        asked = {node for node in {*made, *held} if re.search(options.nodes, node)}
        others = [node for node in sorted(asked) if made.get(node) != held.get(node)]
        where = cpu or "this machine"
        print(f"{family} on {where}: {len(made)} nodes, {len(others)} not as in the table")
        for node in others:
            old, new = (json.dumps(rows.get(node)) for rows in (held, made))
            print(f"  {node}: {new}\n    in the table: {old}", flush=True)
        differing |= bool(others) and not options.write
        if options.write:
            kept = held if options.nodes else {}
            TABLE.write_text(written(found | {family: kept | made}))
    if options.write:
        from special_page import write

        write()
    return int(differing)


def written(found: dict[str, Any]) -> str:
    """The table as text: a line for each node and dtype."""
    families: list[str] = []
    for family, by_node in sorted(found.items()):
        rows = [
            f"  {json.dumps(node)}: "
            + json.dumps(by_node[node], sort_keys=True, separators=(",", ":"))
            for node in sorted(by_node)
        ]
        families.append(f"{json.dumps(family)}: {{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(families) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
