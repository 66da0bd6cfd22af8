"""Running a `.pte` as another CPU would: under `qemu-x86_64`, or on an emulated Arm core.

As a program, it is what the emulator runs: it executes the calls of a folder. It imports no part of
the compiler.
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
    return in_process(cpu, program, [("forward", list(inputs))])[0]


def in_process(
    cpu: str | None, program: bytes, calls: Sequence[tuple[str, list[torch.Tensor]]]
) -> list[list[torch.Tensor]]:
    """Return the results of calls in a process of their own, which a kernel may end.

    Args:
        cpu: `qemu-x86_64 Haswell`; None for this machine.
        program: the `.pte`.
        calls: the method and the inputs of each call.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.pte").write_bytes(program)
        (folder / "calls").write_bytes(pickle.dumps(calls))
        paths = [str(ROOT / "src"), *site.getsitepackages()]
        emulator = [] if cpu is None else [cpu.split()[0], "-cpu", cpu.split()[1]]
        command = [*emulator, os.path.realpath(sys.executable), __file__, name]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise RuntimeError(f"{cpu or 'this machine'}: {last[0]}")
        return pickle.loads((folder / "results").read_bytes())


def _child(folder: Path) -> None:
    from stepwell.backends.executorch.running.engine import runtime

    torch.set_num_threads(1)
    program, methods, results = runtime().load_program(folder / "program.pte"), {}, []
    for name, inputs in pickle.loads((folder / "calls").read_bytes()):
        if name not in methods:
            methods[name] = program.load_method(name)
        results.append([result.clone() for result in methods[name].execute(inputs)])
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
