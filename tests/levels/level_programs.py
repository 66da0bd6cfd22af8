"""The example models as programs."""

from __future__ import annotations

import importlib
from typing import Any

from torch.export import ExportedProgram, export

import stepwell


def program(name: str) -> stepwell.Program:
    """The program of an example, `file:function`."""
    file, function = name.split(":")
    made: Any = getattr(importlib.import_module(file), function)()
    if not isinstance(made, ExportedProgram):
        module, inputs, *shapes = made
        made = export(module, inputs, dynamic_shapes=shapes[0] if shapes else None)
    return stepwell.from_exported_program(made)
