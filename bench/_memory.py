"""Memory that each `.pte` adds to a process that has ExecuTorch's runtime loaded already.

    python bench/_memory.py INPUTS.pt REPEAT ONE.pte OTHER.pte …

It prints a line of JSON. For each program and each of REPEAT times, alternating: the peak resident
megabytes while the program is loaded from its file and run three times on one thread, less those
before (`peak`), the megabytes that remain (`steady`), and the seconds from file to first result.
Each run is in a separate fork, created before any thread starts. Pages of the file count if they
are read, as do packed weights and the workspace.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _report import in_a_child

from stepwell.model_zoo.sweep.memory import peak, resident

MEGABYTE = 1 << 20


def added(pte: Path, inputs: list[torch.Tensor]) -> dict[str, float]:
    """Megabytes that loading and running a program adds, and seconds to its first result."""
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    portable_lib._unsafe_reset_threadpool(1)

    def load_and_run() -> tuple[float, Any]:
        started = time.perf_counter()
        program = Runtime.get().load_program(pte)
        method = program.load_method("forward")
        assert method is not None
        method.execute(inputs)
        taken = time.perf_counter() - started
        for _ in range(2):
            method.execute(inputs)
        return taken, (program, method)  # They live while what remains is counted.

    before = resident("VmRSS")
    (seconds, held), most = peak(load_and_run)
    after = resident("VmRSS")
    del held
    if most is None or before is None or after is None:
        raise SystemExit("memory is measured on Linux only")
    return {"peak": most / MEGABYTE, "steady": (after - before) / MEGABYTE, "seconds": seconds}


def resources(
    programs: Mapping[str, bytes], inputs: Sequence[Any], repeat: int
) -> dict[str, list[dict[str, float]]]:
    """The measurements of each program in a process of this script."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "inputs.pt"
        torch.save(list(inputs), given)
        files = [Path(folder) / f"{index}.pte" for index in range(len(programs))]
        for file, pte in zip(files, programs.values(), strict=True):
            file.write_bytes(pte)
        command = [sys.executable, __file__, str(given), str(repeat), *map(str, files)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(programs, found, strict=True))


def main() -> None:
    import executorch.kernels.quantized  # noqa: F401  # pyright: ignore
    from executorch.runtime import Runtime

    Runtime.get()
    inputs = torch.load(sys.argv[1], weights_only=True)
    files = [Path(name) for name in sys.argv[3:]]
    rounds = [
        [in_a_child(lambda pte=pte: added(pte, inputs))[0] for pte in files]
        for _ in range(int(sys.argv[2]))
    ]
    print(json.dumps([list(found) for found in zip(*rounds, strict=True)]))


if __name__ == "__main__":
    main()
