"""What each `.pte` adds to the memory of a process that has ExecuTorch's runtime loaded already.

    python bench/_memory.py INPUTS.pt ONE.pte OTHER.pte …

A line of JSON: for each program, the highest resident megabytes while it is loaded from its file
and run twice, less what was resident before. Each runs in a fork of its own, made before any thread
starts. The file's pages count as far as they are read, as do packed weights and the workspace.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from stepwell.backends.executorch.runner import PteSession
from stepwell.sweeping.memory import peak


def added(pte: Path, inputs: list[torch.Tensor]) -> float:
    """Megabytes that loading and running a program adds at the most."""

    def load_and_run() -> None:
        session = PteSession.load(pte)
        for _ in range(2):
            session.run(*inputs)

    bytes_added = peak(load_and_run)[1]
    if bytes_added is None:
        raise SystemExit("memory is measured on Linux only")
    return bytes_added / (1 << 20)


def main() -> None:
    import executorch.kernels.quantized  # noqa: F401  # pyright: ignore
    from executorch.runtime import Runtime

    Runtime.get()
    inputs = torch.load(sys.argv[1], weights_only=True)
    found: list[float | None] = []
    for pte in sys.argv[2:]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, json.dumps(added(Path(pte), inputs)).encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 100)
        os.close(read)
        os.waitpid(child, 0)
        found.append(json.loads(said) if said else None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
