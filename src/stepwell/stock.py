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
from typing import Any

from stepwell.ir.diagnostics import ArtefactError


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


def _measure(model: str) -> dict[str, Any]:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from stepwell.backends.executorch.container import DelegateCall, KernelCall
    from stepwell.backends.executorch.read import read_container
    from stepwell.models import open_model

    opened = open_model(model)
    assert opened.module is not None and opened.inputs is not None
    exported = torch.export.export(opened.module, opened.inputs)
    started = time.process_time()
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    pte = edge.to_executorch().buffer
    seconds = time.process_time() - started
    (method,) = read_container(bytearray(pte)).methods
    kernels = [step.kernel for step in method.instructions if isinstance(step, KernelCall)]
    return {
        "seconds": seconds,
        "delegates": sum(isinstance(step, DelegateCall) for step in method.instructions),
        "outside": len(kernels),
        "mul.Scalar": sum(kernel.startswith("aten::mul.Scalar") for kernel in kernels),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
