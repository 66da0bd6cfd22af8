"""Read files with `StepwellError`s, and write files atomically by a temporary file in the same
folder.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from stepwell.ir.diagnostics import StepwellError


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as a `Path`, or raise an error.

    Raises:
        StepwellError: no file can have this name.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise StepwellError(f"{text!r} cannot be a file's name")
    return Path(text)


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file.

    Raises:
        StepwellError: the file does not exist or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StepwellError(f"cannot read {path}: {error.strerror or error}") from None


Content = bytes | bytearray | str | os.PathLike[str] | IO[bytes]
"""Bytes, the path of a file, or an open file."""


def content(given: Content, what: str) -> bytes:
    """Return the bytes of a file.

    Args:
        given: the bytes, a path, or a file that is open for reading bytes.
        what: the kind of file, for the message (`.pte`).

    Raises:
        StepwellError: the argument is none of these, or cannot be read.
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
        f"the argument has type {type(held).__name__}, which cannot be read as the {what}",
        help="pass its bytes, its path, or a file that is open for reading bytes",
    )


@contextmanager
def written_beside(path: Path) -> Generator[Path]:
    """Yield the path of a new temporary file, which replaces `path` at the end of the block.

    Raises:
        StepwellError: the folder does not exist or cannot be written, or the block raised an
            OSError.
    """
    temporary = path.parent / f".stepwell.{secrets.token_hex(8)}"
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:  # including Ctrl-C
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise StepwellError(f"cannot write {path}: {error.strerror or error}") from None


def require_place(path: Path) -> None:
    """Check that a file can be written at a path, before it is made.

    Raises:
        StepwellError: the path is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise StepwellError(
            f"cannot write {path}: it is a folder", help=f"name a file in it: {path / 'model'}"
        )
    if not path.parent.is_dir():
        raise StepwellError(
            f"cannot write {path}: the folder {path.parent} does not exist",
            help=f"mkdir -p {path.parent}",
        )


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write bytes to a file atomically: no reader ever sees a part of them.

    Raises:
        StepwellError: the folder does not exist or cannot be written.
    """
    with written_beside(path) as temporary, temporary.open("xb") as file:
        file.writelines(parts)
