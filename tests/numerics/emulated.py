"""Running a `.pte` as another CPU would: under `qemu-x86_64`, or on an emulated Arm core.

As a program, it is what the emulator runs: it executes `program.pte` of a folder on `inputs`. It
imports no part of the compiler.
"""

from __future__ import annotations

import os
import pickle
import site
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def run_as(cpu: str | None, program: bytes, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results of a program's method `forward`.

    Args:
        cpu: `qemu-x86_64 Haswell`, `cortex-a53`; None for this machine.
        program: the `.pte`.
        inputs: the tensors that the method takes.
    """
    from stepwell.backends.executorch.running.runner import run_pte

    if cpu is None or not cpu.startswith("qemu"):
        return list(run_pte(program, list(inputs), "forward", cpu=cpu))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.pte").write_bytes(program)
        (folder / "inputs").write_bytes(pickle.dumps(list(inputs)))
        paths = [str(ROOT / "src"), *site.getsitepackages()]
        emulator, model = cpu.split()
        command = [emulator, "-cpu", model, os.path.realpath(sys.executable), __file__, name]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{cpu}: {done.stderr.strip().splitlines()[-1]}")
        return pickle.loads((folder / "results").read_bytes())


def _child(folder: Path) -> None:
    from stepwell.backends.executorch.running.engine import runtime

    torch.set_num_threads(1)
    inputs = pickle.loads((folder / "inputs").read_bytes())
    method = runtime().load_program(folder / "program.pte").load_method("forward")
    assert method is not None
    results = [result.clone() for result in method.execute(inputs)]
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
