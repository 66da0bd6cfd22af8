"""What ExecuTorch's own flow makes of a model, measured in a process of its own.

    python -m stepwell.integrations.executorch.stock examples/models/deit.py:deit_tiny

prints one line of JSON: CPU seconds from ExportedProgram to `.pte`, delegates, ops outside them and
how many of those are `mul.Scalar`; with a `.pte` and a quantizer's name (or nothing) behind it, the
ratio of their latencies. What the flow itself prints stays in that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.diagnostics import ArtifactError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def measure_stock(model: str) -> dict[str, Any]:
    """The figures of a model given as `file.py:callable`.

    Raises:
        ArtifactError: the stock flow failed; its last line is told.
    """
    return _apart(model)


def ratio_to_stock(model: str, pte: bytes, quantize: str | None = None) -> float:
    """The time of a call of a `.pte`, of one of the stock flow's for the same model.

    Both run by turns on the same inputs, on one thread of a process of their own; the ratio is that
    of the tenth percentiles.

    Args:
        model: `file.py:callable`, or a `.pt2`.
        pte: what is timed against it.
        quantize: the name of a quantizer, for the module.

    Raises:
        ArtifactError: the stock flow failed; its last line is told.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "ours.pte"
        ours.write_bytes(pte)
        return _apart(model, str(ours), quantize or "")["ratio"]


def _apart(*arguments: str) -> dict[str, Any]:
    """What this module prints, run with these arguments in a process of its own."""
    command = [sys.executable, "-m", "stepwell.integrations.executorch.stock", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise ArtifactError(f"ExecuTorch's own flow failed: {last}")
    return json.loads(run.stdout.splitlines()[-1])


def stock_pte(exported: ExportedProgram) -> bytes:
    """The `.pte` of the stock flow, with its XNNPACK partitioner."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with torch_alone():
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        return edge.to_executorch().buffer


def counted(pte: bytes) -> dict[str, int]:
    """Delegates, ops outside them and `mul.Scalar` among those, counted in a `.pte`."""
    from stepwell.backends.executorch.container import DelegateCall, KernelCall
    from stepwell.backends.executorch.reading.read import read_container

    (method,) = read_container(bytearray(pte)).methods
    kernels = [step.kernel for step in method.instructions if isinstance(step, KernelCall)]
    return {
        "delegates": sum(isinstance(step, DelegateCall) for step in method.instructions),
        "outside": len(kernels),
        "mul.Scalar": sum(kernel.startswith("aten::mul.Scalar") for kernel in kernels),
    }


def _measure(model: str) -> dict[str, Any]:
    from stepwell.loaders.models import open_model
    from stepwell.translate.importer.export_call import export

    opened = open_model(model)
    assert opened.module is not None and opened.inputs is not None
    exported = export(opened.module, opened.inputs)
    started = time.process_time()
    pte = stock_pte(exported)
    return {"seconds": time.process_time() - started, **counted(pte)}


def _timed(model: str, ours: str, quantize: str) -> dict[str, float]:
    import torch

    from stepwell.backends.executorch.running.runner import PteSession
    from stepwell.ir.compat.torch.torch_private import pytree
    from stepwell.loaders.artifacts import random_inputs
    from stepwell.loaders.models import open_model
    from stepwell.translate.executorch_private import reset_threadpool
    from stepwell.translate.importer.export_call import export
    from stepwell.translate.importer.pt2 import load_pt2

    torch.set_num_threads(1)
    reset_threadpool(1)
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
"""How long both programs run by turns, at least."""

if __name__ == "__main__":
    model, *more = sys.argv[1:]
    print(json.dumps(_timed(model, *more) if more else _measure(model)))
