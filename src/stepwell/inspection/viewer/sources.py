"""The model's source text beside its ops, where the files are on this machine.

Locations name a file without its folder. The modules that are loaded, and the folder of a model
given as `file.py:callable`, say where it is; a name that two files bear is left alone.
"""

from __future__ import annotations

import linecache
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_AROUND = 4
"""Lines shown before and after one that an op comes from."""


@dataclass(frozen=True)
class Source:
    """The lines of a file that ops come from, with some around them.

    Attributes:
        path: of the file on this machine.
        lines: line number → text.
    """

    path: str
    lines: dict[int, str]


def sources(places: Iterable[str], folder: Path | None = None) -> dict[str, Source]:
    """The text around each place.

    Args:
        places: `model.py:41`, as ops have them.
        folder: where files are looked for first.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        name, _, number = place.rpartition(":")
        if name and number.isdigit():
            wanted[name].add(int(number))
    return {
        name: Source(str(path), _lines(path, numbers))
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
