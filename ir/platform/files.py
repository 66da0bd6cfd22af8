"""Files: read with errors in words; written whole or not at all, beside their place first."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from stepwell.ir.diagnostics import StepwellError


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path of a file.

    Raises:
        StepwellError: no file can have that name.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise StepwellError(f"{text!r} is the name of no file")
    return Path(text)


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        StepwellError: it does not exist or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StepwellError(f"cannot read {path}: {error.strerror or error}") from None


Content = bytes | bytearray | str | os.PathLike[str] | IO[bytes]
"""Bytes, the path of a file that holds them, or an open file."""


def content(given: Content, what: str) -> bytes:
    """The bytes of a file.

    Args:
        given: them, its path, or the file, open for reading bytes.
        what: it is, for the message (`.pte`).

    Raises:
        StepwellError: it is none of these, or cannot be read.
    """
    held: Any = given
    if isinstance(held, bytes | bytearray):
        return bytes(held)
    if isinstance(held, str | os.PathLike):
        return read_bytes(as_path(cast("str | os.PathLike[str]", held)))
    read = getattr(held, "read", None)
    try:
        found = read() if callable(read) and not isinstance(held, type) else None
    except (OSError, ValueError) as error:
        raise StepwellError(f"cannot read the {what}: {error}") from None
    if isinstance(found, bytes):
        return found
    raise StepwellError(
        f"a {type(held).__name__} is no {what}",
        help="give its bytes, its path, or the file, open for reading bytes",
    )


@contextmanager
def written_beside(path: Path) -> Generator[Path]:
    """A place for a new file, which becomes `path` at the end of the block, whole or not at all.

    Raises:
        StepwellError: the folder does not exist or cannot be written, or the block met an OSError.
    """
    beside = path.parent / f".stepwell.{secrets.token_hex(8)}"
    try:
        yield beside
        os.replace(beside, path)
    except BaseException as error:  # Ctrl-C too
        with suppress(OSError):
            beside.unlink()
        if not isinstance(error, OSError):
            raise
        raise StepwellError(f"cannot write {path}: {error.strerror or error}") from None


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write bytes, one part behind the other, to a file so that no reader ever sees some of them.

    Raises:
        StepwellError: the folder does not exist or cannot be written.
    """
    with written_beside(path) as beside, beside.open("xb") as file:
        file.writelines(parts)
