"""Programs as text and as files, with every dialect known to the parser."""

from __future__ import annotations

import os

import stepwell.dialects as dialects
from stepwell.ir.program import Program
from stepwell.ir.text import parse_module, structurally_equal, to_text
from stepwell.ir.weights import WeightStore

__all__ = ["load_program", "parse_module", "parse_program", "structurally_equal", "to_text"]

KNOWN_DIALECTS = dialects.PACKAGES
"""The dialects that a text may use, beside builtin and func."""


def parse_program(text: str, weights: WeightStore | None = None) -> Program:
    """A program from its text, over the weights of the program it was printed from.

    Raises:
        ParseFailure: with line and column.
    """
    return Program.parse(text, weights)


def load_program(path: str | os.PathLike[str]) -> Program:
    """Read a program that `Program.save` wrote; nothing in its files is executed.

    Raises:
        StepwellError: a file is missing or unreadable.
        ParseFailure: a file is not what `Program.save` writes.
    """
    return Program.load(path)
