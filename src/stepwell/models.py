"""`MODEL` on the command line: a `.pt2`, a saved program, or `file.py:callable`.

The callable returns `(module, example_inputs)` or `(module, example_inputs, dynamic_shapes)`, or
an `ExportedProgram` as it is.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.diagnostics import StepwellError
from stepwell.program import Program, from_exported_program, load


@dataclass(frozen=True)
class Model:
    """A model ready to be lowered: its program, and what is known of where it came from."""

    name: str
    program: Program
    module: Any = None
    inputs: tuple[Any, ...] | None = None


def open_model(spec: str, *, trust: bool = False) -> Model:
    """Open a `MODEL` argument.

    Args:
        spec: `model.pt2`, `model.mlir`, or `file.py:callable`.
        trust: let a `.pt2` unpickle its sample inputs; otherwise they are skipped.

    Raises:
        StepwellError: no such file, no such callable, or a file that does not read.
    """
    path, colon, attribute = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_python(Path(path), attribute)
    file = Path(spec)
    if not file.exists():
        raise StepwellError(
            f"there is no file {spec}",
            help="MODEL is a .pt2, a saved .mlir, or file.py:callable",
        )
    if file.suffix == ".pt2":
        from stepwell.translate.pt2 import load_pt2

        return Model(file.stem, from_exported_program(load_pt2(file, trust=trust)))
    if file.suffix == ".mlir" or file.is_dir():
        return Model(file.stem, load(file))
    raise StepwellError(
        f"{spec} is of no known kind", help="MODEL is a .pt2, a saved .mlir, or file.py:callable"
    )


def _from_python(path: Path, attribute: str) -> Model:
    if not path.exists():
        raise StepwellError(f"there is no file {path}")
    with _importable(path.parent):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        with _users_code(f"{path} cannot be imported", path):
            spec.loader.exec_module(module)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise StepwellError(f"{path} has no callable {attribute!r}")
    with _users_code(f"{attribute}() fails", path):
        made = factory()
    return export_model(attribute, made)


def export_model(name: str, made: Any) -> Model:
    """Export what a factory returned.

    Args:
        name: how to call the model.
        made: `(module, inputs)`, `(module, inputs, dynamic_shapes)`, or an `ExportedProgram`.
    """
    import torch

    if isinstance(made, torch.export.ExportedProgram):
        inputs = made.example_inputs[0] if made.example_inputs else None
        return Model(name, from_exported_program(made), None, inputs)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise StepwellError(
            f"{name} returned {type(made).__name__}",
            help="return (module, example_inputs) or (module, example_inputs, dynamic_shapes)",
        )
    module, inputs, *shapes = made
    dynamic = shapes[0] if shapes else None
    if not isinstance(module, torch.nn.Module):
        raise StepwellError(
            f"{name} returned a {type(module).__name__} where a torch.nn.Module is needed"
        )
    with _users_code(f"torch.export.export fails on {name}"), asked_quietly():
        exported = torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic)
    return Model(name, from_exported_program(exported), module, tuple(inputs))


@contextmanager
def _users_code(fact: str, path: Path | None = None) -> Generator[None]:
    """Whatever goes wrong in a model's own code is the model's error, told with its line."""
    try:
        yield
    except StepwellError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if path is not None and Path(f.filename) == path.resolve()]
        own = own or [f for f in frames if path is not None and Path(f.filename) == path]
        where = f"{path}:{own[-1].lineno}" if own else None
        if isinstance(error, SyntaxError) and error.lineno:
            where = f"{error.filename}:{error.lineno}"
        said = str(error).strip().splitlines()
        message = f"{fact}: {type(error).__name__}: {said[0] if said else ''}"
        raise StepwellError(message, where) from error


@contextmanager
def _importable(folder: Path) -> Generator[None]:
    """Lets a model's file import its neighbours."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
