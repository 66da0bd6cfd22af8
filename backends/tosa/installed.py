"""Commands that packages of Python bring along: TOSA's reference model, Arm's converter."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def command_path(name: str) -> str | None:
    """Where a command is: beside this Python, among its scripts, or else on the PATH.

    A command of tosa-tools is a Python script that starts a program: it is the program, which
    takes a twentieth of the time, unless a folder of other programs is named for the script.
    """
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    found = (shutil.which(name, path=str(place)) for place in (*_programs(), *beside))
    return next((path for path in found if path), None) or shutil.which(name)


def tool(name: str) -> str:
    """Where a command is, or its name: whoever starts it is told that there is none."""
    return command_path(name) or name


def _programs() -> tuple[Path, ...]:
    """Where tosa-tools keeps its programs."""
    if "TOSA_TOOLS_BIN_DIR" in os.environ:
        return ()
    try:
        return (Path(str(distribution("tosa-tools").locate_file("bin"))),)
    except PackageNotFoundError:
        return ()
