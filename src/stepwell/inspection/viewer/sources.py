"""The model's source text for its ops, if the files are on this machine.

A location names a file without its folder. The folder is that of a loaded module, or of a model
given as `file.py:callable`. An ambiguous name is ignored.
"""

from __future__ import annotations

import linecache
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_AROUND = 4
"""The number of lines shown before and after the line of an op."""


@dataclass(frozen=True)
class SourceExcerpt:
    """The lines of a file from which ops come, with some lines around them.

    Attributes:
        path: the file's path on this machine.
        lines: line number → text.
    """

    path: str
    lines: dict[int, str]


def sources(places: Iterable[str], folder: Path | None = None) -> dict[str, SourceExcerpt]:
    """Return the text around each source location.

    Args:
        places: locations of ops, such as `model.py:41`.
        folder: the folder in which files are searched first.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        name, _, number = place.rpartition(":")
        if name and number.isdigit():
            wanted[name].add(int(number))
    return {
        name: SourceExcerpt(str(path), _lines(path, numbers))
        for name, numbers in wanted.items()
        if (path := _find(name, folder)) is not None
    }


def _find(name: str, folder: Path | None) -> Path | None:
    if folder is not None and (folder / name).is_file():
        return (folder / name).resolve()
    files = {
        file
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and Path(file).name == name
    }
    return Path(files.pop()).resolve() if len(files) == 1 else None


def _lines(path: Path, numbers: Iterable[int]) -> dict[int, str]:
    text = linecache.getlines(str(path))
    shown = {
        near
        for number in numbers
        for near in range(number - _AROUND, number + _AROUND + 1)
        if 1 <= near <= len(text)
    }
    return {number: text[number - 1].rstrip("\n") for number in sorted(shown)}
