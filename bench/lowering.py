"""ExportedProgram → .pte on XNNPACK: the stock flow and this one, side by side in one process.

    python bench/lowering.py [file:callable ...] [--ours]
    python bench/lowering.py [file:callable ...] --judging

CPU seconds from an `ExportedProgram` to the bytes of a `.pte`, after imports and one run of each
flow on a small model. Then the file's size and what its first making adds to the memory of the
process at the most (on Linux), delegates, ops outside them, `mul.Scalar` among those, and the
largest difference from eager PyTorch of what the real runtime computes. "Read and written alone"
is the import of the program and the bytes of the lowered one without a rewrite between: no lowering
in this process is faster. The command line's own start-up is a line of its own.
`--judging` lowers three ways in turn: without a judge of special values (`inherited_deviations`),
as always, which asks it about rewrites of plug-ins only, and asking it about every application.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import logging
import os
import resource
import subprocess
import sys
from typing import Any
from unittest import mock

import torch
from _memory import MEGABYTE, peak
from _report import cpu_seconds, prepare, show, write
from torch.export import ExportedProgram

import stepwell
from stepwell.integrations.executorch.stock import counted, stock_pte
from stepwell.ir.rewriting import rewrite
from stepwell.ir.rewriting.inherited_deviations import JUDGES

ALONE = "read and written alone"
MODELS = ("deit:deit_tiny", "mobilenet:mobilenet_v2", "resnet:resnet18")


def stepwell_pte(exported: ExportedProgram, pipeline: str) -> bytes:
    return stepwell.lower(exported, "xnnpack", stepwell.PIPELINES[pipeline]).to_pte()


def examine(pte: bytes, inputs: tuple[Any, ...], expected: torch.Tensor) -> dict[str, Any]:
    """Counts from the bytes themselves, and the error of what the runtime computes."""
    (output,) = stepwell.run_pte(pte, inputs)
    return {
        **counted(pte),
        "bytes": len(pte),
        "error": float((output - expected).abs().max()),
        "scale": float(expected.abs().max()),
    }


def measure(name: str, with_stock: bool, repeat: int) -> dict[str, Any]:
    file, function = name.split(":")
    module, inputs, *_ = getattr(importlib.import_module(file), function)()
    exported = torch.export.export(module.eval(), inputs)
    expected = module(*inputs)
    flows: dict[str, Any] = {}
    for pipeline in ("xnnpack-published", "xnnpack"):
        _, most = peak(lambda p=pipeline: stepwell_pte(exported, p))
        seconds, pte = cpu_seconds(lambda p=pipeline: stepwell_pte(exported, p), repeat)
        found = examine(pte, inputs, expected)
        flows[pipeline] = {"cpu_seconds": seconds, "memory_mb": most and most / MEGABYTE, **found}
    flows[ALONE] = {"cpu_seconds": read_and_written(exported, repeat)}
    if with_stock:
        spare = copy.deepcopy(exported)
        seconds, pte = cpu_seconds(lambda: stock_pte(spare))
        found = examine(pte, inputs, expected)
        flows["stock"] = {"cpu_seconds": seconds, "memory_mb": None, **found}
    return flows


def read_and_written(exported: ExportedProgram, repeat: int) -> float:
    """CPU seconds of a lowering without its rewrites."""
    lowered = stepwell.lower(exported, "xnnpack").program
    read, _ = cpu_seconds(lambda: stepwell.from_exported_program(exported), repeat)
    written, _ = cpu_seconds(lambda: stepwell.emit(lowered, "xnnpack"), repeat)
    return read + written


def judging(name: str, repeat: int) -> list[Any]:
    """The least CPU seconds of each way, and what the second and third add to the first."""
    file, function = name.split(":")
    module, inputs, *_ = getattr(importlib.import_module(file), function)()
    exported = torch.export.export(module.eval(), inputs)

    def ask(rewrite: Any, root: Any, where: Any, rw: Any, program: Any) -> None:
        JUDGES["xnnpack"](program, (root[0], *(gone for gone, _ in rw.erased)), rw.inserted)

    ways = {"none": lambda *_: None, "plug-ins": rewrite.judged, "every application": ask}
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(repeat):
        for way, judge in ways.items():
            with mock.patch.object(rewrite, "judged", judge):
                seconds, _ = cpu_seconds(lambda: stepwell.lower(exported, "xnnpack"))
            least[way] = min(least[way], seconds)
    added = [f"{100 * (seconds / least['none'] - 1):+.1f} %" for seconds in least.values()]
    return [function, *least.values(), *added[1:]]


def made(held: dict[str, Any]) -> list[Any]:
    """What the row of a flow says of its file, if it made one."""
    if "bytes" not in held:
        return [None] * 6
    memory = held["memory_mb"]
    return [
        f"{held['bytes'] / 1e6:.0f}",
        None if memory is None else f"{memory:.0f}",
        held["delegates"],
        held["outside"],
        held["mul.Scalar"],
        f"{held['error']:.1e} of {held['scale']:.1f}",
    ]


def warm_up(with_stock: bool) -> None:
    """Imports and first calls of both flows."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    for pipeline in ("xnnpack-published", "xnnpack"):
        stepwell_pte(torch.export.export(module.eval(), (torch.randn(2, 4),)), pipeline)
    if with_stock:
        stock_pte(torch.export.export(module.eval(), (torch.randn(2, 4),)))


def start_up(code: str) -> float:
    """CPU seconds of a Python process that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--ours", action="store_true", help="leave the stock flow out")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours; the best is shown")
    parser.add_argument("--judging", action="store_true", help="what judging plug-ins adds")
    options = parser.parse_args()
    prepare()
    logging.disable(logging.WARNING)
    if options.judging:
        stepwell_pte(torch.export.export(torch.nn.Linear(4, 4), (torch.randn(2, 4),)), "xnnpack")
        rows = [judging(name, options.repeat) for name in options.models]
        show("judging", ("model", "none", "plug-ins", "every application", "+", "+"), rows)
        return
    warm_up(not options.ours)
    results: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for name in options.models:
        flows = results[name] = measure(name, not options.ours, options.repeat)
        stock = flows.get("stock", {}).get("cpu_seconds")
        for flow in sorted(flows):
            held = flows[flow]
            times = stock / held["cpu_seconds"] if stock and flow != "stock" else None
            speed = [held["cpu_seconds"], f"{times:.0f}×" if times else None]
            rows.append([f"{name.split(':')[1]}  {flow}", *speed, *made(held)])
        write("lowering", results)
    results["start-up"] = {
        "import torch": start_up("import torch"),
        "stepwell lower, ready to run": start_up(
            "import stepwell.lowering, stepwell.loaders.models"
        ),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    columns = (
        "model and flow",
        "CPU s",
        "faster",
        "file MB",
        "memory MB",
        "delegates",
        "outside",
        "mul.Scalar",
        "max error",
    )
    started = results["start-up"]
    note = (
        f"start-up of the command line: {started['stepwell lower, ready to run']:.2f} CPU s, "
        f"of which torch {started['import torch']:.2f} s"
    )
    show("ExportedProgram → .pte", columns, rows, note)
    write("lowering", results)


if __name__ == "__main__":
    main()
