"""`load`: read a program from a file of any kind; the first bytes determine the kind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.platform.files import Content, content
from stepwell.program import Program, from_exported_program, parse
from stepwell.program import load as load_saved

_ARCHIVE, _VGF = b"PK\x03\x04", b"VGF1"
_IDENTIFIER = slice(4, 8)
"""Position of a flatbuffer's file identifier."""


def load(path: Content) -> Program:
    """Read a program without executing code from the file.

    Args:
        path: the file's path, its bytes, or the open file: a program that `Program.save` wrote (by
            path, the weights next to it are read too; the text alone has only the weights' types),
            a `.pt2`, a `.pte`, a bundled program (`.bpte`), a TOSA flatbuffer, or a `.vgf`.

    Raises:
        ParseFailure: the file is none of these, or damaged.
        StepwellError: the file cannot be read.
    """
    if isinstance(path, str | os.PathLike):
        place = Path(path)
        if place.suffix == ".mlir" or place.is_dir():
            return load_saved(place)
        if _is_archive(place):
            return _of_pt2(place)  # Not read whole into memory: it holds the weights.
    held = content(path, "program")
    if held.startswith(_ARCHIVE):
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / "program.pt2"
            copied.write_bytes(held)
            return _of_pt2(copied)
    kind = held[_IDENTIFIER]
    if kind[:2] in (b"ET", b"BP") or kind == b"TOSA" or held.startswith(_VGF):
        from stepwell.loaders.artifacts import read_artifact

        return read_artifact(held)
    try:
        return parse(held.decode())
    except UnicodeDecodeError:
        raise ParseFailure(
            "the bytes are no program",
            help="a saved .mlir, a .pt2, a .pte, a .bpte, a .tosa and a .vgf can be read",
        ) from None


def _is_archive(place: Path) -> bool:
    """Whether a file exists and begins like an archive."""
    try:
        with place.open("rb") as file:
            return file.read(len(_ARCHIVE)) == _ARCHIVE
    except (OSError, ValueError):
        return False  # What is wrong with it, the reader says.


def _of_pt2(place: Path) -> Program:
    from stepwell.translate.importer.pt2 import load_pt2

    return from_exported_program(load_pt2(place))
