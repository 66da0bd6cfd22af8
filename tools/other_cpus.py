"""Run the tests of kernels as other CPUs would, because kernel libraries select code by CPU.

    python tools/other_cpus.py                     every CPU of the table below
    python tools/other_cpus.py -k Haswell          CPUs whose name matches
    python tools/other_cpus.py -- tests/xnnpack    other tests than the marked ones (`kernels`)

PyTorch's and oneDNN's own switches restrict eager only, at full speed. Debian's qemu-user runs the
whole process, including ExecuTorch's runtime and XNNPACK, with another CPU's instructions, some
twenty times slower. It supports AVX2 and below, so AVX-512 is tested on real machines only. Exit
status 1 if a test fails anywhere or qemu is missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QEMU = "qemu-x86_64"
MISSING = f"""not run: there is no {QEMU}, which emulates another CPU for a process
  help: apt-get install qemu-user"""


@dataclass(frozen=True)
class Cpu:
    """A CPU to imitate: by switches of libraries, or emulated."""

    name: str
    switches: dict[str, str] = field(default_factory=dict[str, str])
    emulated: str | None = None
    """A name in the output of `qemu-x86_64 -cpu help`."""

    def command(self, tests: Sequence[str]) -> list[str]:
        """Return the command that runs the tests. The interpreter of a virtual environment is a
        link, which must be resolved for qemu.
        """
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        if self.emulated is None:
            return [sys.executable, *pytest]
        return [QEMU, "-cpu", self.emulated, os.path.realpath(sys.executable), *pytest]

    def environment(self) -> dict[str, str]:
        """Return the environment: one thread, and the packages of this environment."""
        paths = [os.environ.get("PYTHONPATH", ""), *site.getsitepackages()]
        return {
            **os.environ,
            **self.switches,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }


CPUS = (
    Cpu("eager as SSE4", {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    Cpu("eager as AVX2", {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    Cpu("Haswell: AVX2", emulated="Haswell"),
    Cpu("SandyBridge: AVX", emulated="SandyBridge"),
)


def main() -> int:
    """Run the CPUs in turn; print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-k", default="", metavar="NAME", help="only CPUs of such a name")
    parser.add_argument("tests", nargs="*", default=["-m", "kernels"], help="pytest's arguments")
    options = parser.parse_args()
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"not run: this is {platform.machine()}, and the CPUs are x86-64 ones")
        return 1
    failed = False
    for cpu in CPUS:
        if options.k not in cpu.name:
            continue
        if cpu.emulated is not None and shutil.which(QEMU) is None:
            print(f"{cpu.name:16} {MISSING}")
            failed = True
            continue
        started = time.perf_counter()
        done = subprocess.run(
            cpu.command(options.tests),
            cwd=ROOT,
            env=cpu.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        killed = f"killed by signal {-done.returncode}" if done.returncode < 0 else "no output"
        lines = done.stdout.strip().splitlines() or [killed]
        print(f"{cpu.name:16} {lines[-1]} ({time.perf_counter() - started:.0f} s)", flush=True)
        if done.returncode:
            failed = True
            print("\n".join(lines[-60:]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
