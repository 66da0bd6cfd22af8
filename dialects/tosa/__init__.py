"""TOSA's operators, declared from the schema its serialiser ships."""

from xdsl.ir import Dialect, Operation

from stepwell.dialects.tosa.attributes import ATTRIBUTES
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.generated import OPERATORS
from stepwell.dialects.tosa.structural import STRUCTURAL
from stepwell.ir.levels import Level, register_level

Tosa = Dialect("tosa", [*OPERATORS, *STRUCTURAL], [*ATTRIBUTES])


def _refuses(op: Operation) -> str | None:
    return None if isinstance(op, TosaOp) else "not a TOSA operator"


register_level(Level("tosa", _refuses))
