"""TOSA's operators, declared from the schema of its serializer."""

from xdsl.ir import Dialect, Operation

from stepwell.dialects.tosa import axes as _axes
from stepwell.dialects.tosa import shapes as _shapes
from stepwell.dialects.tosa.attributes import ATTRIBUTES
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.generated import OPERATORS
from stepwell.dialects.tosa.structural import STRUCTURAL
from stepwell.ir.declared.interpretation import meaning_stands_in
from stepwell.ir.levels import Level, register_level

__all__ = ["TOSA_LEVEL", "Tosa", "_axes", "_shapes"]

Tosa = Dialect("tosa", [*OPERATORS, *STRUCTURAL], [*ATTRIBUTES])
"""The operators, types and enumerations."""

meaning_stands_in("tosa", "stepwell.dialects.tosa.meaning.rules")


def _refuses(op: Operation) -> str | None:
    return None if isinstance(op, TosaOp) else "it is not a TOSA operator"


TOSA_LEVEL = register_level(Level("tosa", _refuses))
"""The level of programs that are written as a flatbuffer."""
