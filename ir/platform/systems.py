"""Features that not every operating system has."""

from __future__ import annotations

import os

from stepwell.ir.diagnostics import StepwellError


def needs_fork(what: str) -> None:
    """Raise an error if the system has no `fork`, which `what` uses to start processes.

    Raises:
        StepwellError: the system has no `fork` (Windows).
    """
    if not hasattr(os, "fork"):
        raise StepwellError(
            f"{what} starts processes by fork, which this system does not support",
            help="use Linux, macOS, or WSL on Windows; no other command needs fork",
        )
