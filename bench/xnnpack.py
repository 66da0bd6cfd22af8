"""Stock ExecuTorch and stepwell on XNNPACK, model by model: what runs, how fast, how it compiles.

    python bench/xnnpack.py [--models deit_tiny,gpt2_2layers:256,deit_tiny@static] [--threads 1]

Both flows lower the same exported model in this process. Then the two programs run on the real
runtime turn by turn, so that whatever else the machine does falls on both alike. A ratio is stock's
time divided by ours: above 1 we are faster. The tenth percentile is the figure to trust on a shared
machine. Counts are read from the bytes of the two `.pte` files. The floor of a transformer is our
own program without softmax, gelu and norms, run in turn with the two: products and layout alone.
Memory is the highest resident size that loading and running adds to a process that has the runtime
in it (`bench/_memory.py`), with the runtime's own number of threads.

`gpt2_2layers:256` is a prompt of 256 tokens: the ops between the products grow with the square
of the prompt, so a ratio without its length means little. `@static`, `@dynamic`, `@8da4w` are int8.
`--stock FOLDER` keeps the stock flow's programs there, with the seconds they took, and takes them
from there the next time. `--counts FILE` writes nothing but the stock flow's counts there
(`tests/xnnpack/data/stock_counts.json`).
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import logging
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _report import RESULTS, cpu_seconds, prepare, show, write
from lowering import stock_pte

import stepwell
from stepwell.backends.executorch.container import DelegateCall, KernelCall
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.xnnpack.pte import to_pte
from stepwell.dialects import xnnpack
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History

MODELS = {
    "deit_tiny": "deit",
    "convnext_atto": "convnext",
    "swin_tiny": "swin",
    "gpt2_2layers": "gpt2",
    "llama_block": "llama",
    "llama_4layers": "llama",
    "mixer_s32": "mixer",
    "mobilenet_v2": "mobilenet",
    "mobilenet_v3_small": "mobilenet",
    "mobilevit_xxs": "mobilevit",
    "efficientnet_b0": "efficientnet",
    "resnet18": "resnet",
    "resnet50": "resnet",
}
"""Each model and its file in examples/models."""
QUANTIZED = (
    "deit_tiny@static",
    "deit_tiny@dynamic",
    "mobilenet_v2@static",
    "resnet18@static",
    "llama_block@8da4w",
)
"""Models in int8 (`examples/models/quantized.py`): their errors are against the float model."""

PROMPTS = (
    "gpt2_2layers:64",
    "gpt2_2layers:128",
    "gpt2_2layers:256",
    "gpt2_2layers:512",
    "llama_block:64",
    "llama_block:128",
    "llama_block:256",
    "llama_block:512",
)
"""Models with prompts longer than the examples' own 32 and 16 tokens."""

LAYOUT = (xnnpack.StaticTranspose, xnnpack.StaticReshape, xnnpack.StaticSlice)
OURS, STOCK, FLOOR = "stepwell", "stock", "products only"
WITH_FLOOR = ("deit_tiny", "gpt2_2layers", "llama_block")
"""Models that are also run without softmax, gelu and norms."""


@dataclass(frozen=True)
class Measured:
    """One program: seconds, bytes, counts, and its distance from eager PyTorch."""

    p10_ms: float
    median_ms: float
    compile_cpu_seconds: float
    bytes: int
    delegates: int
    outside: int
    layout: dict[str, int]
    nodes: int
    error: float
    scale: float
    equals_stock: bool
    memory_mb: float | None


def set_threads(count: int | None) -> int:
    """Threads of XNNPACK's pool, None for its own choice; only before the first delegate loads."""
    from stepwell.translate.executorch_private import count_threads, reset_threadpool

    if count is not None:
        reset_threadpool(count)
    return count_threads()


def calls(pte: bytes) -> dict[str, int]:
    """Delegates, and kernels outside."""
    (method,) = read_container(bytearray(pte)).methods
    return {
        "delegates": sum(isinstance(step, DelegateCall) for step in method.instructions),
        "outside": sum(isinstance(step, KernelCall) for step in method.instructions),
    }


def count(pte: bytes) -> dict[str, Any]:
    """Bytes, delegates, kernels outside, and ops inside that only move elements."""
    inside = Counter(
        op.name.removeprefix("xnnpack.")
        for op in stepwell.read_pte(pte).module.walk()
        if isinstance(op, xnnpack.XnnpackOp)
    )
    return {
        "bytes": len(pte),
        **calls(pte),
        "layout": {
            name: inside[name] for name in (op.name.removeprefix("xnnpack.") for op in LAYOUT)
        },
        "nodes": inside.total(),
    }


def run_in_turn(
    programs: dict[str, bytes],
    inputs: Sequence[Any],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, tuple[Any, ...]]]:
    """Return milliseconds of each run of each program, and the results of its first call.

    On one thread, `time.thread_time` is a clock that stops while another process runs.
    """
    sessions = {name: PteSession.load(pte) for name, pte in programs.items()}
    first = {
        name: tuple(value.clone() for value in session.run(*inputs))
        for name, session in sessions.items()
    }
    for session in sessions.values():
        session.run(*inputs)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    order = list(sessions)
    for _ in range(rounds):
        for name in order:
            started = clock()
            sessions[name].run(*inputs)
            times[name].append(1000 * (clock() - started))
        order.reverse()
    return times, first


def products_only(lowered: stepwell.Lowered) -> bytes:
    """The `.pte` of a lowered program without softmax, gelu and row norms.

    A norm is found by its root: the product with it is taken away, and with it what it reads.
    """
    program = lowered.program.clone()
    for op in tuple(program.module.walk()):
        if isinstance(op, xnnpack.Softmax | xnnpack.Gelu | xnnpack.Sigmoid):
            op.output.replace_all_uses_with(op.input)
        elif isinstance(op, xnnpack.Multiply) and isinstance(
            op.right.owner, xnnpack.ReciprocalSquareRoot
        ):
            op.output.replace_all_uses_with(op.left)
    RemoveDeadCode().apply(program, History())
    return to_pte(program)


def stock_of(name: str, exported: Any, kept: Path | None) -> tuple[float, bytes]:
    """CPU seconds and bytes of the stock flow, kept in a folder if one is given."""
    if kept is None:
        return cpu_seconds(lambda: stock_pte(exported))
    made, took = kept / f"{name}.pte", kept / f"{name}.seconds"
    seconds = float(took.read_text()) if made.exists() and took.exists() else math.nan
    if math.isnan(seconds):  # A program without what it took to make is made again.
        kept.mkdir(parents=True, exist_ok=True)
        seconds, pte = cpu_seconds(lambda: stock_pte(exported))
        made.write_bytes(pte)
        took.write_text(str(seconds))
    return seconds, made.read_bytes()


def memory(programs: dict[str, bytes], inputs: Sequence[Any]) -> dict[str, float | None]:
    """Megabytes that each program adds to a process of its own; None if the process ended."""
    found = resources(programs, inputs, 1)
    return {flow: held[0]["peak"] if held[0] else None for flow, held in found.items()}


def resources(
    programs: dict[str, bytes], inputs: Sequence[Any], repeat: int
) -> dict[str, list[dict[str, float] | None]]:
    """Return the output of `bench/_memory.py` for each program, repeated alternately."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "inputs.pt"
        torch.save(list(inputs), given)
        files = [Path(folder) / f"{index}.pte" for index in range(len(programs))]
        for file, pte in zip(files, programs.values(), strict=True):
            file.write_bytes(pte)
        script = Path(__file__).with_name("_memory.py")
        done = subprocess.run(
            [sys.executable, str(script), str(given), str(repeat), *map(str, files)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{script.name}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(programs, found, strict=True))


def made(called: str) -> tuple[torch.nn.Module, tuple[Any, ...], str, bool]:
    """The module and inputs of a name such as `gpt2_2layers:256` or `deit_tiny@static`.

    With them its int8 form, "" for none, and whether it has a floor.
    """
    plain, _, kind = called.partition("@")
    name, _, tokens = plain.partition(":")
    function = getattr(importlib.import_module(MODELS[name]), name)
    module, inputs = function(int(tokens)) if tokens else function()
    return module.eval(), tuple(inputs), kind, name in WITH_FLOOR and not kind


def program_of(module: torch.nn.Module, inputs: tuple[Any, ...], kind: str) -> Any:
    """The exported program, quantized if a form is named."""
    return quantized(module, inputs, kind) if kind else torch.export.export(module, inputs)


@torch.no_grad()
def measure(name: str, rounds: int, pipeline: str, kept: Path | None) -> dict[str, Measured]:
    """Lower with both flows, run in turn, count."""
    module, inputs, kind, has_floor = made(name)
    expected = copy.deepcopy(module)(*inputs)
    exported = program_of(module, inputs, kind)
    spare = copy.deepcopy(exported)
    seconds: dict[str, float] = {}
    programs: dict[str, bytes] = {}
    seconds[STOCK], programs[STOCK] = stock_of(name, spare, kept)
    seconds[OURS], programs[OURS] = cpu_seconds(
        lambda: stepwell.lower(exported, "xnnpack", stepwell.PIPELINES[pipeline]).to_pte(), 2
    )
    if has_floor:
        lowered = stepwell.lower(exported, "xnnpack", stepwell.PIPELINES[pipeline])
        seconds[FLOOR], programs[FLOOR] = cpu_seconds(lambda: products_only(lowered))
    times, first = run_in_turn(programs, inputs, rounds)
    resident = memory({flow: programs[flow] for flow in (STOCK, OURS)}, inputs)
    return {
        flow: Measured(
            p10_ms=statistics.quantiles(times[flow], n=10, method="inclusive")[0],
            median_ms=statistics.median(times[flow]),
            compile_cpu_seconds=seconds[flow],
            error=float((first[flow][0] - expected).abs().max()),
            scale=float(expected.abs().max()),
            equals_stock=torch.equal(first[flow][0], first[STOCK][0]),
            memory_mb=resident.get(flow),
            **count(programs[flow]),
        )
        for flow in programs
    }


def name_of(called: str) -> str:
    """`gpt2_2layers` of `gpt2_2layers:256@8da4w`."""
    return called.partition("@")[0].partition(":")[0]


@torch.no_grad()
def stock_counts(name: str, kept: Path | None) -> dict[str, int]:
    """Delegates, operators outside and layout ops of the stock flow's program."""
    module, inputs, kind, _ = made(name)
    found = count(stock_of(name, program_of(module, inputs, kind), kept)[1])
    return {
        "delegates": found["delegates"],
        "outside": found["outside"],
        "layout": sum(found["layout"].values()),
        "transposes": found["layout"]["static_transpose"],
    }


def quantized(module: torch.nn.Module, inputs: Sequence[Any], kind: str) -> Any:
    """The program of a model in int8: PT2E static or dynamic by channel, or torchao's 8da4w."""
    from quantized import by_groups, quantize

    if kind == "8da4w":
        return by_groups(module, tuple(inputs))
    return quantize(module, tuple(inputs), per_channel=True, dynamic=kind == "dynamic")


def warm_up() -> None:
    """Imports and first calls of both flows."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    exported = torch.export.export(module.eval(), (torch.randn(2, 4),))
    stepwell.lower(exported, "xnnpack").to_pte()
    stock_pte(exported)


def pair(before: Any, after: Any) -> str:
    return f"{before} → {after}"


def speed(name: str, stock: Measured, ours: Measured, floor: Measured | None) -> list[Any]:
    """A line of the table of times and errors."""
    return [
        name,
        pair(f"{stock.p10_ms:.2f}", f"{ours.p10_ms:.2f}"),
        f"{stock.p10_ms / ours.p10_ms:.2f}",
        f"{stock.median_ms / ours.median_ms:.2f}",
        f"{ours.p10_ms / floor.p10_ms:.2f}" if floor else "",
        pair(f"{stock.error:.1e}", f"{ours.error:.1e}") + " (equal)" * ours.equals_stock,
        f"{stock.compile_cpu_seconds / ours.compile_cpu_seconds:.0f}×",
    ]


def structure(name: str, stock: Measured, ours: Measured) -> list[Any]:
    """A line of the table of counts and sizes."""
    transposes = xnnpack.StaticTranspose.name.removeprefix("xnnpack.")
    return [
        name,
        pair(f"{stock.delegates}/{stock.outside}", f"{ours.delegates}/{ours.outside}"),
        pair(stock.layout[transposes], ours.layout[transposes]),
        pair(sum(stock.layout.values()), sum(ours.layout.values())),
        pair(f"{stock.bytes / 1e6:.2f}", f"{ours.bytes / 1e6:.2f}"),
        pair(*(f"{flow.memory_mb:.1f}" if flow.memory_mb else "–" for flow in (stock, ours))),
    ]


SPEED = ("model", "p10 ms", "p10 ratio", "median ratio", "of products", "max error", "compile")
STRUCTURE = (
    "model",
    "delegates/outside",
    "transposes",
    "layout ops",
    "file MB",
    "memory MB",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models",
        default=",".join((*MODELS, *PROMPTS, *QUANTIZED)),
        help="names, with commas between; name:tokens for a prompt, name@form for int8",
    )
    parser.add_argument("--threads", type=int, default=1, help="of the runtime; 0 is its default")
    parser.add_argument("--rounds", type=int, default=60, help="runs of each program")
    parser.add_argument("--pipeline", default="xnnpack")
    parser.add_argument("--stock", type=Path, help="folder that keeps the stock flow's programs")
    parser.add_argument("--counts", type=Path, help="write the stock flow's counts to this file")
    options = parser.parse_args()
    names = options.models.split(",")
    if unknown := sorted({name for name in names if name_of(name) not in MODELS}):
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    prepare()
    logging.disable(logging.WARNING)
    if options.counts:
        counts = {name: stock_counts(name, options.stock) for name in names}
        options.counts.write_text(json.dumps(counts, indent=1) + "\n")
        return
    threads = set_threads(options.threads or None)
    warm_up()
    rows: tuple[list[list[Any]], list[list[Any]]] = [], []
    results: dict[str, Any] = {}
    for name in names:
        found = measure(name, options.rounds, options.pipeline, options.stock)
        rows[0].append(speed(name, found[STOCK], found[OURS], found.get(FLOOR)))
        rows[1].append(structure(name, found[STOCK], found[OURS]))
        results[name] = {flow: asdict(held) for flow, held in found.items()}
        print(*rows[0][-1], *rows[1][-1][1:], flush=True)
    title = f"stock → stepwell on XNNPACK, {threads} thread(s), {options.rounds} runs each"
    note = "ratio: stock / ours; of products: ours / floor; compile: CPU seconds, stock / ours"
    show(title, SPEED, rows[0], note)
    show(title, STRUCTURE, rows[1], "memory: what loading and two runs add to a process at most")
    file = f"xnnpack-{threads}-threads" if threads != 1 else "xnnpack"
    kept = RESULTS / f"{file}.json"
    before = json.loads(kept.read_text())["results"] if kept.exists() else {}
    write(file, {**before, **results})


if __name__ == "__main__":
    main()
