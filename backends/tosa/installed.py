"""Commands installed with Python packages: TOSA's reference model, Arm's converter."""

import os
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def command_path(name: str) -> str | None:
    """Find a command: next to this Python's executable, in its scripts folder, or on the PATH.

    A command of tosa-tools is a Python script that starts a native program. The result is the
    native program, which starts twenty times as fast, unless the script is configured to use other
    programs.
    """
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    found = (shutil.which(name, path=str(place)) for place in (*_programs(), *beside))
    return next((path for path in found if path), None) or shutil.which(name)


def tool(name: str) -> str:
    """Return the path of a command, or its name if it is not installed, so that starting it
    fails.
    """
    return command_path(name) or name


def _programs() -> tuple[Path, ...]:
    """Return the folders in which tosa-tools keeps its programs."""
    if "TOSA_TOOLS_BIN_DIR" in os.environ:
        return ()
    try:
        return (Path(str(distribution("tosa-tools").locate_file("bin"))),)
    except PackageNotFoundError:
        return ()
