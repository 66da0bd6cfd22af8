"""Locations of ops: node name, module path, and line of the model's source.

`loc("conv2d_1"("blocks.0"("model.py":41:0)))`. Files are named without their folders, so that a
program's text reveals nothing about the machine that exported it. A notebook's cell is named
`cell [3]`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import torch
from torch.fx import Node
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, NameLoc, StringAttr, UnknownLoc

Location = FileLineColLoc | NameLoc | UnknownLoc
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CELL = re.compile(r"<ipython-input-(\d+)-\w+>|.*[/\\]__marimo__cell_(\w+?)_?\.py")
_FOREIGN = ('File "<', f'File "{os.path.dirname(torch.__file__)}{os.sep}')
_TYPED = 'File "<ipython-input-'
_COLUMN = IntAttr(0)
_UNKNOWN = UnknownLoc()


class Locations:
    """Locations of one import; equal parts are shared."""

    def __init__(self) -> None:
        self._lines: dict[str, Location] = {}
        self._places: dict[tuple[str, str | None], Location] = {}

    def of(self, node: Node) -> NameLoc:
        """Return the location of a node."""
        meta = node.meta
        stack = meta.get("nn_module_stack")
        path = _innermost_path(stack) if stack else ""
        key = (path, meta.get("stack_trace"))
        place = self._places.get(key)
        if place is None:
            place = self._line(key[1])
            if path:
                place = NameLoc(StringAttr(path), place)
            self._places[key] = place
        return _named(node.name, place)

    def _line(self, trace: str | None) -> Location:
        found = users_frame(trace) if trace else None
        if found is None:
            return _UNKNOWN
        spelled = found[0]
        line = self._lines.get(spelled)
        if line is None:
            line = FileLineColLoc(StringAttr(_file(found[1])), IntAttr(int(found[2])), _COLUMN)
            self._lines[spelled] = line
        return line


def _named(name: str, place: Location) -> NameLoc:
    """Return `NameLoc(StringAttr(name), place)` unverified, which saves a third of an import."""
    location = NameLoc.__new__(NameLoc)
    object.__setattr__(location, "desc", StringAttr(name))
    object.__setattr__(location, "location", place)
    return location


def users_frame(trace: str) -> re.Match[str] | None:
    """Match the innermost stack frame that is neither generated code (`<eval_with_key>`) nor
    PyTorch's; the layers of an `nn.Sequential` have none, and are known by their module's path.

    Group 1 is the file, group 2 the line.
    """
    start = trace.rfind('File "')
    while start >= 0:
        if not trace.startswith(_FOREIGN, start) or trace.startswith(_TYPED, start):
            return _FRAME.match(trace, start)
        start = trace.rfind('File "', 0, start)
    return None


def _file(path: str) -> str:
    """Return a file name without its folders, or the number of a notebook's cell."""
    if cell := _CELL.fullmatch(path):
        return f"cell [{cell[1] or cell[2]}]"
    # ipykernel stores cells in separate files, and IPython knows which cell ran as which file.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    number = numbers.get(path)
    return re.split(r"[/\\]", path)[-1] if number is None else f"cell [{number}]"


def _innermost_path(stack: dict[str, Any]) -> str:
    """Return the path of the last module entered, `layers.0.attention`."""
    path: str = next(reversed(stack.values()))[0]
    for prefix in ("L['self'].", "L__self__."):
        path = path.removeprefix(prefix)
    return "" if path in ("L['self']", "L__self__") else path
