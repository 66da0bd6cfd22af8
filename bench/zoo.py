"""Models of timm and torchvision, a small one of each family: stock ExecuTorch and stepwell.

    python bench/zoo.py [--models regnetx_002,googlenet] [--alone] [--stock FOLDER]
                        [--rounds 40] [--table docs/xnnpack.md]

Both flows lower the same exported program, and the two run turn by turn at one thread, as in
`bench/xnnpack.py`, whose words hold here: a ratio is stock's time divided by ours, and layout ops
are transposes, reshapes and slices inside delegates. Times are CPU time of the one thread, because
a sweep is long and other processes come and go meanwhile. Errors are largest differences from eager
PyTorch in parts of its largest number. Weights are random, of the scale that a trained model has:
`scaled` says how. `--alone` leaves stock out; `--table` writes the table between the markers of a
document, of all models in bench/results/zoo.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _report import RESULTS, between_markers, cpu_seconds, prepare, show, write
from _zoo_models import MISSING, SIZES, create
from torch import nn
from xnnpack import count, pair, run_in_turn, set_threads, stock_of, warm_up

import stepwell

OURS, STOCK = "stepwell", "stock"


@dataclass(frozen=True)
class Flow:
    """One flow's program for one model: counts, seconds, and its distance from eager PyTorch."""

    delegates: int
    outside: int
    transposes: int
    layout: int
    nodes: int
    compile_cpu_seconds: float
    error: float
    p10_ms: float | None = None


@torch.no_grad()
def scaled(module: nn.Module, image: torch.Tensor) -> nn.Module:
    """The module as if it were trained: nothing constant, and batch norms that know their inputs.

    Parameters that start as one number (scales of layers and norms, biases, tokens) get noise of
    0.1, so that a branch that begins as nothing counts. Means and variances are those of a batch
    of noise.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for parameter in module.parameters():
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # An average of all batches, of which there is one.
        norm.train()
    with contextlib.suppress(ValueError):  # One value a channel: then that norm keeps 0 and 1.
        module(torch.randn(8, *image.shape[1:]))
    return module.eval()


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result, in order."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(leaf)]


def distance(found: Any, expected: list[torch.Tensor]) -> float:
    """The largest difference, in parts of the largest number."""
    most = max(float(one.abs().max()) for one in expected)
    return max(
        float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)
    ) / (most or 1.0)


@torch.no_grad()
def measure(name: str, rounds: int, alone: bool, kept: Path | None) -> dict[str, Flow]:
    """Lower a model, run it, count: by flow."""
    torch.manual_seed(0)
    image = torch.randn(1, 3, SIZES[name], SIZES[name])
    module = scaled(create(name).eval(), image)
    expected = tensors(module(image))
    exported = torch.export.export(module, (image,))
    seconds, programs = {}, {}
    seconds[OURS], programs[OURS] = cpu_seconds(
        lambda: stepwell.lower(exported, "xnnpack").to_pte(), 1 if alone else 2
    )
    if not alone:
        seconds[STOCK], programs[STOCK] = stock_of(name, exported, kept)
    times, results = run_in_turn(programs, (image,), 0 if alone else rounds, time.thread_time)
    flows: dict[str, Flow] = {}
    for flow, pte in programs.items():
        counts = count(pte)
        flows[flow] = Flow(
            delegates=counts["delegates"],
            outside=counts["outside"],
            transposes=counts["layout"]["static_transpose"],
            layout=sum(counts["layout"].values()),
            nodes=counts["nodes"],
            compile_cpu_seconds=seconds[flow],
            error=distance(results[flow], expected),
            p10_ms=None
            if alone
            else statistics.quantiles(times[flow], n=10, method="inclusive")[0],
        )
    return flows


COLUMNS = (
    "model",
    "pixels",
    "delegates / outside",
    "transposes",
    "layout ops",
    "error",
    "p10 ms",
    "ratio",
    "compile s",
)


def line(name: str, flows: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line of the table; stock's numbers are before the arrow."""
    both = [flows[flow] for flow in (STOCK, OURS) if flow in flows]
    stock, ours = flows.get(STOCK), flows[OURS]

    def column(form: str, *keys: str) -> str:
        parts = ["/".join(form.format(flow[key]) for key in keys) for flow in both]
        return pair(*parts) if stock else parts[0]

    timed = stock is not None and stock["p10_ms"] is not None
    return [
        name,
        str(SIZES[name]),
        column("{}", "delegates", "outside"),
        column("{}", "transposes"),
        column("{}", "layout"),
        column("{:.0e}", "error"),
        column("{:.1f}", "p10_ms") if timed else "–",
        f"{stock['p10_ms'] / ours['p10_ms']:.2f}" if stock and timed else "–",
        compiling(stock, ours),
    ]


def compiling(stock: dict[str, Any] | None, ours: dict[str, Any]) -> str:
    """CPU seconds of compiling, and how many times less that is than stock's."""
    took = ours["compile_cpu_seconds"]
    return f"{took:.2f}" + (f" ({stock['compile_cpu_seconds'] / took:.0f}×)" if stock else "")


def markdown(results: dict[str, Any]) -> list[str]:
    """Return a document's table: models compared with stock, and a sentence on the others."""
    compared = [name for name in SIZES if STOCK in results.get(name, ())]
    alone = {name: results[name][OURS] for name in SIZES if name in results}
    others = [name for name in alone if name not in compared]
    whole = [
        name for name in others if (alone[name]["delegates"], alone[name]["outside"]) == (1, 0)
    ]
    parts = [
        f"{name} {alone[name]['delegates']} / {alone[name]['outside']}"
        for name in others
        if name not in whole
    ]
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
        *("| " + " | ".join(line(name, results[name])) + " |" for name in compared),
    ]
    if whole:
        lines += ["", f"Without stock beside them (`--alone`), 1 / 0: {', '.join(whole)}."]
    if parts:
        lines += ["", f"In parts: {', '.join(parts)}."]
    return lines


def runs(names: list[str], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each model gives; a model that does not is named, and the others go on."""
    for name in names:
        gc.collect()
        try:
            found = measure(name, options.rounds, options.alone, options.stock)
        except Exception as error:  # Of whichever flow: it is shown, and the model has no line.
            print(f"{name}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
            continue
        yield name, {flow: asdict(held) for flow, held in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", default=",".join(SIZES), help="names, commas between; may be empty"
    )
    parser.add_argument("--alone", action="store_true", help="leave stock out")
    parser.add_argument("--stock", type=Path, help="folder that keeps the stock flow's programs")
    parser.add_argument("--rounds", type=int, default=40, help="runs of each program")
    parser.add_argument("--table", type=Path, help="document whose table to write again")
    options = parser.parse_args()
    if MISSING:
        parser.error(f"{MISSING} is not installed; the extra 'models' holds it")
    names = [name for name in options.models.split(",") if name]
    if unknown := sorted(set(names) - set(SIZES)):
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(SIZES)}")
    prepare()
    logging.disable(logging.WARNING)
    set_threads(1)
    if not options.alone:
        warm_up()
    kept = RESULTS / "zoo.json"
    results = json.loads(kept.read_text())["results"] if kept.exists() else {}
    lines = []
    for name, found in runs(names, options):
        lines.append(line(name, found))
        print(*lines[-1], flush=True)
        if not options.alone or STOCK not in results.get(name, ()):
            results[name] = found
            write("zoo", results)
    show("stock → stepwell on XNNPACK, 1 thread", COLUMNS, lines)
    if options.table:
        between_markers(options.table, "zoo", markdown(results))


if __name__ == "__main__":
    main()
