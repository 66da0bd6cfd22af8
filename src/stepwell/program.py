"""The public `Program`: the IR's program with import from and export to PyTorch and text."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepwell.dialects import make_known
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import StepwellError, VerificationError
from stepwell.ir.program import Program, Session
from stepwell.ir.syntax.storage import pack_tensors, unpack_bytes
from stepwell.ir.syntax.text import ask_for_more, parse_module, to_text
from stepwell.ir.weights import WeightStore
from stepwell.plugins.plugins import load_entry_points
from stepwell.translate.executorch_private import constant_methods

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Plain = bool | int | float | str | Sequence[bool | int | float | str]
"""The result of a constant method."""

__all__ = [
    "Program",
    "Session",
    "StepwellError",
    "VerificationError",
    "from_exported_program",
    "load",
    "parse",
]

ask_for_more(load_entry_points)


def _in_another_process(program: Program) -> Any:
    """Pickle a program as its text and weights, as `save` does."""
    tensors = {key: program.weights.get(key) for key in sorted(program.used_weights())}
    context = program.context
    settings = (context.target, dict(context.options), context.exact)
    text = to_text(program.module, locations=True)
    return _restored, (text, pack_tensors(tensors), program.samples, settings)


def _restored(
    text: str, packed: bytes, samples: dict[str, Any], settings: tuple[Any, ...]
) -> Program:
    make_known()
    module, weights = parse_module(text), WeightStore()
    for key, tensor in unpack_bytes(packed).items():
        weights.add(key, tensor)
    return Program(module, weights, samples, Context(*settings))


copyreg.pickle(Program, _in_another_process)


def from_exported_program(
    exported: ExportedProgram | Mapping[str, ExportedProgram | Plain],
) -> Program:
    """Import a torch program, or several as methods that share state, without decomposing it.

    Args:
        exported: an `ExportedProgram` (training, functional or edge dialect); a mapping from method
            name to one, or to a plain value (a number, a bool, a string, or a list of these) that a
            method of that name returns, which runners use to query a model; or the result of
            ExecuTorch's `to_edge`.

    Raises:
        UnsupportedError: listing every op that the IR cannot represent, with its source line.
        StepwellError: an argument is not an exported program.
    """
    from stepwell.translate.importer.from_torch import from_exported_program as translate

    programs: Any = programs_of(exported)
    if not isinstance(programs, Mapping | torch.export.ExportedProgram):
        raise StepwellError(
            f"a value of type {type(programs).__name__} is not an exported program",
            help="export it first: torch.export.export(module.eval(), example_inputs)",
        )
    load_entry_points()  # They may register the program's custom operators.
    return translate(programs)


def programs_of(given: Any) -> Any:
    """Return the methods of a result of ExecuTorch's `to_edge` by name; any other value unchanged.

    Raises:
        StepwellError: it contains delegates already, or is the result of `to_executorch`.
    """
    if not type(given).__module__.startswith("executorch.exir."):
        return given
    if hasattr(given, "buffer"):
        raise StepwellError(
            f"{type(given).__name__} is a result of to_executorch: memory is planned already",
            help="stepwell.read_pte(manager.buffer) reads it",
        )
    if not hasattr(given, "exported_program"):
        return given
    programs = {name: given.exported_program(name) for name in sorted(given.methods)}
    for name, program in programs.items():
        if any("call_delegate" in str(node.target) for node in program.graph.nodes):
            raise StepwellError(
                f"the method {name!r} already contains delegates",
                help="lower the result of to_edge before to_backend, or the exported program",
            )
    return {**programs, **constant_methods(given)}


def parse(text: str, weights: WeightStore | None = None) -> Program:
    """Parse a program; `weights` is the weight store of the program from which it was printed.

    Raises:
        ParseFailure: with line and column.
    """
    make_known()
    return Program.parse(text, weights)


def load(path: str | os.PathLike[str]) -> Program:
    """Read a program that `Program.save` wrote. No code of the file is executed."""
    make_known()
    return Program.load(path)
