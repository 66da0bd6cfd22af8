"""TOSA bytes to a `.vgf` file for Vulkan's ML extensions, by Arm's model converter in a process.

The converter (0.11) supports static shapes and plain constants only: block-scaled ones are
"Unable to serialize constants", shape operators "explicitly marked illegal". The target `vgf` has
neither.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.installed import command_path
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program

CONVERTER = "model-converter"
"""The command of `ai-ml-sdk-model-converter`."""


def to_vgf(program: Program, **options: Any) -> bytes:
    """Return the `.vgf` of a program at level `tosa`.

    Args:
        program: lowered for the target `vgf`.
        options: as for `to_tosa`.

    Raises:
        StepwellError: the converter is not installed.
        UnsupportedError: the converter refuses the graph; the message is its own.
    """
    data = to_tosa(program, **options)
    command = command_path(CONVERTER)
    if command is None:
        raise StepwellError(
            "Arm's model converter is not installed", help="pip install 'stepwell[vgf]'"
        )
    with tempfile.TemporaryDirectory() as name:
        given, made = Path(name) / "graph.tosa", Path(name) / "graph.vgf"
        given.write_bytes(data)
        arguments = [command, "-i", str(given), "-o", str(made)]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode or not made.exists():
            raise UnsupportedError(f"the model converter refuses the graph: {_complaint(done)}")
        return made.read_bytes()


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    errors = [line for line in lines if "error:" in line or "Assertion" in line]
    return (errors or lines or [f"exit code {done.returncode}"])[0]
