"""Import models of published packages of which not all dependencies are installed, and print rows.

Each row is measured in a process of its own, because mocks replace modules of the whole process.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import types
from collections.abc import Collection, Iterable
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

NO_VERSION = "9.9.9"


def make_importable(folder: str, parts: Iterable[str], mocked: Collection[str]) -> None:
    """Make the packages of a folder importable.

    Args:
        folder: where `pip install --target` put them.
        parts: packages whose modules are imported without `__init__`, which imports what is absent.
        mocked: modules that a package imports, but that no model calls: mocks, if they are absent.
    """
    sys.path.append(folder)
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: NO_VERSION if name in mocked else version(name)
    for name in parts:
        part: Any = types.ModuleType(name)
        sys.modules[name] = part
        part.__path__ = [str(Path(folder) / name.replace(".", "/"))]
        part.__version__ = NO_VERSION
    for name in mocked:
        try:
            import_module(name)
        except (ImportError, OSError):  # It is not installed, or built for another PyTorch.
            mock = sys.modules[name] = MagicMock()
            mock.__spec__, mock.__path__ = ModuleSpec(name, None), []
            mock.__version__ = NO_VERSION


def print_rows(script: str, folder: str, names: Iterable[str], *flags: str) -> int:
    """Run a script with `--row NAME` for each name; return the sum of its statuses."""
    wrong = 0
    for name in names:
        command = [sys.executable, *flags, script, folder, "--row", name]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{name}: {(done.stderr.splitlines() or ['wrong'])[-1]}", flush=True)
        wrong += done.returncode
    return wrong
