"""Commands that packages of Python bring along: TOSA's reference model, Arm's converter."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path


def command_path(name: str) -> str | None:
    """Where a command is: beside this Python, among its scripts, or else on the PATH."""
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    found = (shutil.which(name, path=str(place)) for place in beside)
    return next((path for path in found if path), None) or shutil.which(name)
