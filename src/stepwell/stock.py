"""What ExecuTorch's own flow makes of a model, measured in a process of its own.

    python -m stepwell.stock examples/models/deit.py:deit_tiny

prints one line of JSON: CPU seconds from ExportedProgram to `.pte`, delegates, ops outside them and
how many of those are `mul.Scalar`. What the flow itself prints stays in that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import ArtefactError
from stepwell.ir.torch_globals import torch_alone

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def measure_stock(model: str) -> dict[str, Any]:
    """The figures of a model given as `file.py:callable`.

    Raises:
        ArtefactError: the stock flow failed; its last line is told.
    """
    command = [sys.executable, "-m", "stepwell.stock", model]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise ArtefactError(f"ExecuTorch's own flow failed: {last}")
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
    from stepwell.backends.executorch.read import read_container

    (method,) = read_container(bytearray(pte)).methods
    kernels = [step.kernel for step in method.instructions if isinstance(step, KernelCall)]
    return {
        "delegates": sum(isinstance(step, DelegateCall) for step in method.instructions),
        "outside": len(kernels),
        "mul.Scalar": sum(kernel.startswith("aten::mul.Scalar") for kernel in kernels),
    }


def _measure(model: str) -> dict[str, Any]:
    from stepwell.models import open_model
    from stepwell.translate.exporting import export

    opened = open_model(model)
    assert opened.module is not None and opened.inputs is not None
    exported = export(opened.module, opened.inputs)
    started = time.process_time()
    pte = stock_pte(exported)
    return {"seconds": time.process_time() - started, **counted(pte)}


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
