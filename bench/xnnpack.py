"""Stock ExecuTorch and stepwell on XNNPACK, model by model: operators, time, memory, compile time.

    python bench/xnnpack.py [--kind zoo] [--models deit_tiny,gpt2_2layers:256,deit_tiny@static]
        [--rounds 60] [--threads 1] [--stock FOLDER] [--table docs/xnnpack.md]
    python bench/xnnpack.py --models deit_tiny --resources 5 [--table docs/peers.md]
    python bench/xnnpack.py --kind experts --without multiply-all-experts,choose-by-rank

Both flows lower the same exported model, in a process of its own, and the programs run there turn
by turn. A ratio is stock's time divided by ours: above 1 we are faster. The tenth percentile is the
figure to trust on a shared machine. With one thread the clock is that thread's CPU time. Counts are
read from the bytes of the two `.pte` files; layout ops are transposes, reshapes and slices inside
delegates. Errors are the largest difference from eager PyTorch (for int8, from the float model),
relative to the largest element. The failure of the stock flow or of its program is a result too;
then ours is measured alone.

`--resources N` measures instead, in N processes for each file, the peak memory that loading and
three runs add, the memory that remains, and the seconds from file to first result. `--without`
adds a program of ours without some rewrites. `--stock FOLDER` keeps the stock flow's programs and
their seconds. Rows are kept in `bench/results`; `--table` writes all rows of the kind. `--counts
FILE` only writes counts: of stock's programs for the examples, of ours for the other kinds
(`tests/xnnpack/data`). The kinds and their models are in `bench/_models.py`.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import logging
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _memory import resources
from _models import FINITE, KINDS, UNTUNED, Model, made, numerics_of
from _report import (
    between_markers,
    cpu_seconds,
    in_a_child,
    markdown,
    p10,
    prepare,
    read,
    set_threads,
    show,
    write,
)
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects import xnnpack
from stepwell.integrations.executorch.stock import counted, stock_pte
from stepwell.ir.declared.numerics import Numerics

OURS, STOCK, WITHOUT = "stepwell", "stock", "without"
PACKAGES = {"zoo": "timm", "graphs": "torch_geometric"}
"""What the models of a kind come from."""
LAYOUT = (xnnpack.StaticTranspose, xnnpack.StaticReshape, xnnpack.StaticSlice)
Flows = dict[str, dict[str, Any]]


def count(pte: bytes) -> dict[str, Any]:
    """Bytes, delegates, kernels outside, and ops inside that only move elements."""
    inside = Counter(type(op) for op in stepwell.read_pte(pte).module.walk())
    outer = counted(pte)
    return {
        "bytes": len(pte),
        "delegates": outer["delegates"],
        "outside": outer["outside"],
        "transposes": inside[xnnpack.StaticTranspose],
        "layout": sum(inside[op] for op in LAYOUT),
    }


def run_in_turn(
    programs: dict[str, bytes],
    inputs: Sequence[Any],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, tuple[Any, ...]]]:
    """Milliseconds of each run of each program, and the results of its first call."""
    sessions = {name: PteSession.load(pte) for name, pte in programs.items()}
    first = {
        name: tuple(value.clone() for value in session.run(*inputs))
        for name, session in sessions.items()
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    order = list(sessions)
    for _ in range(rounds + 1):
        for name in order:
            started = clock()
            sessions[name].run(*inputs)
            times[name].append(1000 * (clock() - started))
        order.reverse()
    return {name: each[1:] for name, each in times.items()}, first


def stock_of(name: str, exported: Any, kept: Path | None) -> tuple[float, bytes]:
    """CPU seconds and bytes of the stock flow, kept in a folder if one is given."""
    if kept is None:
        return cpu_seconds(lambda: stock_pte(exported))
    file, took = kept / f"{name}.pte", kept / f"{name}.seconds"
    seconds = float(took.read_text()) if file.exists() and took.exists() else math.nan
    if math.isnan(seconds):
        kept.mkdir(parents=True, exist_ok=True)
        seconds, pte = cpu_seconds(lambda: stock_pte(exported))
        file.write_bytes(pte)
        took.write_text(str(seconds))
    return seconds, file.read_bytes()


def distance(found: Sequence[Any], expected: Sequence[torch.Tensor]) -> float:
    """The largest difference of an output, relative to that output's largest element."""
    return max(
        float((one.float() - other.float()).abs().max() / (other.float().abs().max() or 1.0))
        for one, other in zip(found, expected, strict=True)
    )


def attempt(step: str, work: Callable[[], Any]) -> tuple[Any, str]:
    """What the stock flow returns, or the step and the error that it failed with."""
    try:
        return work(), ""
    except Exception as error:  # Whatever stock fails with is a result here.
        words = re.sub(r"\s+", " ", str(error)).strip()[:160].replace("|", "/")
        return None, f"{step}: {type(error).__name__}: {words}"


@torch.no_grad()
def measure(name: str, options: argparse.Namespace, with_stock: bool) -> Flows:
    """The programs of a model: made, counted, and run in turn or loaded."""
    set_threads(options.threads or None)
    model = made(name)
    expected = pytree.tree_leaves(copy.deepcopy(model.module)(*model.inputs))
    exported = model.exported()
    spare = copy.deepcopy(exported)
    found: Flows = {}
    programs: dict[str, bytes] = {}
    numerics = options.numerics or numerics_of(name)
    pipelines = {OURS: stepwell.PIPELINES["xnnpack"]}
    if options.without:
        pipelines[WITHOUT] = pipelines[OURS].without(*options.without.split(","))
    seconds: dict[str, float] = {}
    for flow, pipeline in pipelines.items():
        seconds[flow], programs[flow] = cpu_seconds(
            lambda p=pipeline: stepwell.lower(exported, "xnnpack", p, numerics=numerics).to_pte(), 2
        )
    if with_stock:
        stock, fault = attempt("lowering", lambda: stock_of(name, spare, options.stock))
        if stock is not None:
            _, fault = attempt("running", lambda: PteSession.load(stock[1]).run(*model.inputs))
        if fault:
            found[STOCK] = {"fails": fault}
        else:
            seconds[STOCK], programs[STOCK] = stock
    if options.resources:
        loads = resources(programs, model.inputs, options.resources)
        return found | {flow: count(programs[flow]) | loaded(loads[flow]) for flow in programs}
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    times, first = run_in_turn(programs, model.inputs, options.rounds, clock)
    for flow, pte in programs.items():
        found[flow] = count(pte) | {
            "compile_cpu_seconds": seconds[flow],
            "p10_ms": p10(times[flow]),
            "error": distance(first[flow], expected),
        }
    return found


def loaded(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of the megabytes and the least of the seconds of some loads."""
    return {
        "peak_mb": statistics.median(run["peak"] for run in runs),
        "steady_mb": statistics.median(run["steady"] for run in runs),
        "load_seconds": min(run["seconds"] for run in runs),
    }


def compare(name: str, options: argparse.Namespace) -> Flows:
    """Measured in a child, and once more without stock if that ended the child."""
    found, ended = in_a_child(lambda: measure(name, options, not options.alone))
    if found is not None:
        return found
    alone, again = in_a_child(lambda: measure(name, options, False))
    if alone is None:
        raise SystemExit(f"{name}: stepwell's own flow ends with {again}")
    return {STOCK: {"fails": f"the process ends with {ended}"}, **alone}


def line(name: str, found: Flows, columns: dict[str, tuple[str, ...]]) -> list[str]:
    """A model's row: stock → ours → ours without some rewrites; ratios are of stock to ours."""
    stock, ours = found.get(STOCK, {}), found[OURS]
    flows = [flow for flow in (found.get(STOCK), ours, found.get(WITHOUT)) if flow is not None]
    cells = [name.replace("_", " ") + ", finite" * (name in FINITE)]
    for form, *keys in columns.values():
        if form == "÷":
            (key,) = keys
            cells.append(f"{stock[key] / ours[key]:.2f}×" if key in stock else "")
        else:
            held = [
                "/".join(form.format(f[k]) for k in keys) if keys[0] in f else "–" for f in flows
            ]
            cells.append(" → ".join(held))
    return cells


COLUMNS: dict[str, tuple[str, ...]] = {
    "delegates/outside": ("{}", "delegates", "outside"),
    "p10 ms": ("{:.3f}", "p10_ms"),
    "ratio": ("÷", "p10_ms"),
    "compile CPU s": ("{:.2f}", "compile_cpu_seconds"),
    "error": ("{:.0e}", "error"),
    "transposes": ("{}", "transposes"),
    "layout ops": ("{}", "layout"),
}
RESOURCES: dict[str, tuple[str, ...]] = {
    "delegates/outside": ("{}", "delegates", "outside"),
    "peak MB": ("{:.1f}", "peak_mb"),
    "stock ÷ ours": ("÷", "peak_mb"),
    "steady MB": ("{:.1f}", "steady_mb"),
    "load s": ("{:.3f}", "load_seconds"),
    "load, stock ÷ ours": ("÷", "load_seconds"),
}


def table(results: dict[str, Flows], columns: dict[str, tuple[str, ...]]) -> list[str]:
    """A page's table: a row a model, the mean ratio, and the failures of stock."""
    lines = markdown(("model", *columns), [line(n, f, columns) for n, f in results.items()])
    key = next(keys[1] for keys in columns.values() if keys[0] == "÷")
    ratios = [f[STOCK][key] / f[OURS][key] for f in results.values() if key in f.get(STOCK, {})]
    if ratios:
        lines += ["", f"Geometric mean of {len(ratios)} ratios: "]
        lines[-1] += f"{statistics.geometric_mean(ratios):.2f}×."
    faults = {n: f[STOCK]["fails"] for n, f in results.items() if "fails" in f.get(STOCK, {})}
    if faults:
        lines += ["", "What stock fails with:", ""]
        lines += [f"- {name.replace('_', ' ')}: {fault}" for name, fault in faults.items()]
    return lines


@torch.no_grad()
def counts(name: str, model: Model, kept: Path | None) -> Any:
    """Counts of stock's program of an example; of another model's our own, by `numerics`."""
    if name not in UNTUNED:
        found = count(stock_of(name, model.exported(), kept)[1])
        return {key: found[key] for key in ("delegates", "outside", "layout", "transposes")}
    modes: tuple[Numerics, ...] = ("torch", "finite") if name in FINITE else ("torch",)
    reports = {
        mode: stepwell.lower(model.exported(), "xnnpack", numerics=mode).report for mode in modes
    }
    return {
        mode: {"delegates": report.delegates, "outside": dict(sorted(report.outside.items()))}
        for mode, report in reports.items()
    }


def warm_up() -> None:
    """Import both flows, and call them once."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    exported = torch.export.export(module.eval(), (torch.randn(2, 4),))
    stepwell.lower(exported, "xnnpack").to_pte()
    stock_pte(exported)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default="examples", choices=KINDS)
    parser.add_argument("--models", help="names, with commas between; all of the kind")
    parser.add_argument("--rounds", type=int, default=60, help="runs of each program")
    parser.add_argument("--threads", type=int, default=1, help="of the runtime; 0: its default")
    parser.add_argument("--numerics", help="instead of each model's own")
    parser.add_argument("--without", default="", help="names of rewrites, with commas between")
    parser.add_argument("--resources", type=int, default=0, help="processes that load each file")
    parser.add_argument("--alone", action="store_true", help="leave stock out")
    parser.add_argument("--stock", type=Path, help="folder that keeps the stock flow's programs")
    parser.add_argument("--table", type=Path, help="page whose table to write")
    parser.add_argument("--counts", type=Path, help="write counts to this file")
    options = parser.parse_args()
    names = KINDS[options.kind] if options.models is None else options.models.split(",")
    names = [name for name in names if name]
    if (package := PACKAGES.get(options.kind)) and importlib.util.find_spec(package) is None:
        parser.error(f"--kind {options.kind} needs the package {package}")
    prepare()
    logging.disable(logging.WARNING)
    if options.counts:
        found = {
            f"{UNTUNED[name]}:{name}" if name in UNTUNED else name: counts(
                name, made(name), options.stock
            )
            for name in names
        }
        options.counts.write_text(json.dumps(found, indent=1) + "\n")
        return
    columns = RESOURCES if options.resources else COLUMNS
    file = "loading" if options.resources else f"xnnpack-{options.kind}"
    results: dict[str, Flows] = dict(read(file) or {})
    warm_up()
    for name in names:
        results[name] = compare(name, options)
        print(*line(name, results[name], columns), flush=True)
        write(file, results)
    rows = [line(name, results[name], columns) for name in names]
    show(f"stock → stepwell, {options.threads} thread(s)", ("model", *columns), rows)
    if options.table:
        marker = "loading" if options.resources else options.kind
        between_markers(options.table, marker, table(results, columns))


if __name__ == "__main__":
    main()
