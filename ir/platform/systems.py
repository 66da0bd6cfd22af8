"""What not every operating system has."""

from __future__ import annotations

import os

from stepwell.ir.diagnostics import StepwellError


def needs_fork(what: str) -> None:
    """Ask for `fork`, by which many programs are lowered from one warm process.

    Raises:
        StepwellError: Windows has none.
    """
    if not hasattr(os, "fork"):
        raise StepwellError(
            f"{what} starts processes by fork, which this system has not",
            help="Linux, macOS, or on Windows WSL; every other command needs none",
        )
