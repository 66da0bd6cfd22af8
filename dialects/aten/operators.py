"""The classes of the operators in `operators.txt`: one schema per line, as PyTorch prints it.

A comment `impure` means that an unused call must stay or that equal calls differ, and `elementwise`
that each element is computed from the corresponding operand elements.

`generate.py` writes the table and `operators.pyi`, which shows type checkers and editors the
fields of each class.
"""

from __future__ import annotations

from pathlib import Path

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import define


def _define(line: str) -> type[SchemaOp]:
    text, _, notes = line.partition(" # ")
    cls = define(text, pure="impure" not in notes, elementwise="elementwise" in notes)
    cls.__module__ = __name__
    return cls


_TABLE = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8").splitlines()

OPERATORS = tuple(_define(line) for line in _TABLE if not line.startswith("#"))
"""The class of each line, in order."""

_NAMED = {cls.__name__: cls for cls in OPERATORS}
globals().update(_NAMED, __all__=list(_NAMED))
