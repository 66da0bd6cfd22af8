"""The example models as programs."""

import importlib
from functools import cache
from typing import Any

from torch.export import ExportedProgram, export

import stepwell


@cache
def exported(name: str) -> ExportedProgram:
    """An example, `file:function`, as torch exports it."""
    file, function = name.split(":")
    made: Any = getattr(importlib.import_module(file), function)()
    if isinstance(made, ExportedProgram):
        return made
    module, inputs, *shapes = made
    return export(module.eval(), inputs, dynamic_shapes=shapes[0] if shapes else None)


def program(name: str) -> stepwell.Program:
    """The program of an example, `file:function`."""
    return stepwell.from_exported_program(exported(name))
