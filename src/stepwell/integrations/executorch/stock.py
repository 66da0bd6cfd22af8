"""Measure ExecuTorch's own flow on a model, in a separate process.

    python -m stepwell.integrations.executorch.stock examples/models/deit.py:deit_tiny

prints one line of JSON: CPU seconds from ExportedProgram to `.pte`, the number of delegates, of ops
outside them and of `mul.Scalar` among those. With a `.pte` and a quantizer's name (or an empty one)
as further arguments, it prints the ratio of their latencies. The flow's own output is discarded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.container import DelegateCall, KernelCall
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.compat.torch.lazy_imports import OnDemand, torch
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import ArtifactError
from stepwell.loaders.artifacts import random_inputs
from stepwell.loaders.models import open_model
from stepwell.translate import executorch_private
from stepwell.translate.importer.export_call import export
from stepwell.translate.importer.pt2 import load_pt2

if TYPE_CHECKING:
    from torch.export import ExportedProgram

xnnpack_partitioner = OnDemand("executorch.backends.xnnpack.partition.xnnpack_partitioner")
exir = OnDemand("executorch.exir")


def measure_stock(model: str) -> dict[str, Any]:
    """Measure the figures of a model, a `file.py:callable`.

    Raises:
        ArtifactError: the stock flow failed; the message has its last line.
    """
    return _apart(model)


def ratio_to_stock(model: str, pte: bytes, quantize: str | None = None) -> float:
    """Return the time of a call of a `.pte`, divided by the time of the stock flow's `.pte`.

    Both artifacts run alternately on the same inputs, on one thread of a separate process; the
    ratio is that of the tenth percentiles.

    Args:
        model: `file.py:callable`, or a `.pt2`.
        pte: the artifact to time.
        quantize: the name of a quantizer, for the module.

    Raises:
        ArtifactError: the stock flow failed; the message has its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "ours.pte"
        ours.write_bytes(pte)
        return _apart(model, str(ours), quantize or "")["ratio"]


def _apart(*arguments: str) -> dict[str, Any]:
    """Run this module with these arguments in a separate process; return its output."""
    command = [sys.executable, "-m", "stepwell.integrations.executorch.stock", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise ArtifactError(f"ExecuTorch's own flow failed: {last}")
    return json.loads(run.stdout.splitlines()[-1])


def stock_pte(exported: ExportedProgram, **options: Any) -> bytes:
    """Build the `.pte` of the stock flow, with its XNNPACK partitioner and the partitioner's
    options, such as `enable_bf16`.
    """
    with torch_alone():
        edge = exir.to_edge_transform_and_lower(
            exported, partitioner=[xnnpack_partitioner.XnnpackPartitioner(**options)]
        )
        return edge.to_executorch().buffer


def counted(pte: bytes) -> dict[str, int]:
    """Count the delegates of a `.pte`, the ops outside them and `mul.Scalar` among those."""
    (method,) = read_container(bytearray(pte)).methods
    kernels = [step.kernel for step in method.instructions if isinstance(step, KernelCall)]
    return {
        "delegates": sum(isinstance(step, DelegateCall) for step in method.instructions),
        "outside": len(kernels),
        "mul.Scalar": sum(kernel.startswith("aten::mul.Scalar") for kernel in kernels),
    }


def _measure(model: str) -> dict[str, Any]:
    opened = open_model(model)
    assert opened.module is not None and opened.inputs is not None
    exported = export(opened.module, opened.inputs)
    stock_pte(export(torch.nn.Linear(1, 1), (torch.ones(1, 1),)))  # Imports are not a lowering.
    started = time.process_time()
    pte = stock_pte(exported)
    return {"seconds": time.process_time() - started, **counted(pte)}


def _timed(model: str, ours: str, quantize: str) -> dict[str, float]:
    torch.set_num_threads(1)
    executorch_private.reset_threadpool(1)
    opened = None if model.endswith(".pt2") else open_model(model, quantize=quantize or None)
    if opened is None:
        exported = load_pt2(model)
    elif opened.module is None or opened.inputs is None:
        raise SystemExit(f"{model} has no module and inputs to export")
    else:
        exported = export(opened.module, opened.inputs)
    data = Path(ours).read_bytes()
    programs = [PteSession.load(data), PteSession.load(stock_pte(exported))]
    if opened is not None:
        inputs = pytree.tree_leaves(opened.inputs)
    else:
        inputs = random_inputs(data, "forward", 0)
    given = [program.laid_out(inputs, "forward") for program in programs]
    times: list[list[float]] = [[], []]
    until = time.perf_counter() + SECONDS
    while len(times[0]) < LEAST_CALLS or time.perf_counter() < until:
        for program, values, held in zip(programs, given, times, strict=True):
            started = time.perf_counter()
            program.run(*values)
            held.append(time.perf_counter() - started)
    ours_, theirs = (sorted(held)[len(held) // 10] for held in times)
    return {"ratio": ours_ / theirs}


SECONDS, LEAST_CALLS = 2.0, 20
"""Least time that both programs run alternately."""

if __name__ == "__main__":
    model, *more = sys.argv[1:]
    print(json.dumps(_timed(model, *more) if more else _measure(model)))
