"""`Program` as users meet it: the IR's program with the ways in and out of torch and text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepwell.dialects import make_known
from stepwell.ir.diagnostics import StepwellError, VerificationError
from stepwell.ir.program import Program as IRProgram
from stepwell.ir.program import Session
from stepwell.ir.weights import WeightStore

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Plain = bool | int | float | str | Sequence[bool | int | float | str]
"""What a constant method gives."""

__all__ = [
    "Program",
    "Session",
    "StepwellError",
    "VerificationError",
    "from_exported_program",
    "load",
    "parse",
]


class Program(IRProgram):
    """A module at some level, its weights, and everything one can ask of it.

    Attributes:
        module: the xDSL `ModuleOp`.
        weights: the store that its keys name.
    """

    @classmethod
    def of(cls, program: IRProgram) -> Program:
        """The same module and weights as a front-door program."""
        return (
            program
            if isinstance(program, cls)
            else cls(program.module, program.weights, program.samples, program.context)
        )

    def to_exported_program(self, method: str = "forward") -> ExportedProgram:
        """A torch program again, from the aten level.

        Raises:
            StepwellError: the program is at another level.
        """
        from stepwell.translate.to_torch import to_exported_program

        return to_exported_program(self, method)

    def _repr_html_(self) -> str:
        from stepwell.showing.tables import program_fragment

        return program_fragment(self)


def from_exported_program(
    exported: ExportedProgram | Mapping[str, ExportedProgram | Plain],
) -> Program:
    """Import a torch program, or several as methods that share state, without decomposing it.

    Args:
        exported: an `ExportedProgram` (training, functional or edge dialect), or a mapping from
            method name to one, or to a plain value (a number, a truth value, a text, a list of
            these) that a method of that name gives: runners ask such methods about a model.

    Raises:
        UnsupportedError: listing every op that has no form in the IR, with its source line.
        StepwellError: something else than exported programs was given.
    """
    from torch.export import ExportedProgram

    from stepwell.translate.from_torch import from_exported_program as translate

    given: Any = exported
    if not isinstance(given, Mapping | ExportedProgram):
        raise StepwellError(
            f"a {type(given).__name__} is no exported program",
            help="export it first: torch.export.export(module.eval(), example_inputs)",
        )
    return Program.of(translate(exported))


def parse(text: str, weights: WeightStore | None = None) -> Program:
    """Read a program from its text; `weights` is the store of the program it was printed from.

    Raises:
        ParseFailure: with line and column.
    """
    make_known()
    return Program.parse(text, weights)


def load(path: str | os.PathLike[str]) -> Program:
    """Read a program that `Program.save` wrote. Executes nothing from the file."""
    make_known()
    return Program.load(path)
