"""Files: read with errors in words; written whole or not at all, beside their place first."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        StepwellError: it does not exist or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StepwellError(f"cannot read {path}: {error.strerror or error}") from None


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write bytes, one part behind the other, to a file so that no reader ever sees some of them.

    Raises:
        StepwellError: the folder does not exist or cannot be written.
    """
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise StepwellError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except OSError as error:
        os.unlink(beside)
        raise StepwellError(f"cannot write {path}: {error.strerror or error}") from None


def _umask() -> int:
    held = os.umask(0)
    os.umask(held)
    return held
