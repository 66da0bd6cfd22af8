"""Write the bounds of a clamp of unsigned bytes as the bytes that PyTorch makes of them.

PyTorch converts a bound to the tensor's type: on unsigned bytes −1 is 255. Other libraries compare
with −1 itself, and ExecuTorch's kernel refuses it at run time.

Before:
    func.func @forward(%x: tensor<4xui8>) -> tensor<4xui8> {
      %y = aten.clamp.default(%x, -1, 3) : (tensor<4xui8>) -> tensor<4xui8>
      func.return %y : tensor<4xui8>
    }
After:
    func.func @forward(%x: tensor<4xui8>) -> tensor<4xui8> {
      %y = aten.clamp.default(%x, 255, 3) : (tensor<4xui8>) -> tensor<4xui8>
      func.return %y : tensor<4xui8>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import ui8
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import same_type
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class WrapClampBounds(Respell):
    """`clamp(x, -1, 3)` of unsigned bytes to `clamp(x, 255, 3)`."""

    name: ClassVar[str] = "wrap-clamp-bounds"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampDefault,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Guards: unsigned bytes before and after, and a negative whole number as a bound."""
        if element(op.operands[0].type) != ui8 or not same_type(op.operands[0], op.results[0]):
            return None
        given = {name: op.arg(name) for name in ("min", "max")}
        if not any(wraps(bound) for bound in given.values()):
            return None
        held = {name: bound % 256 if wraps(bound) else bound for name, bound in given.items()}
        return Respelled(op, aten.ClampDefault, {"self": op.operands[0], **held})


def wraps(bound: Any) -> bool:
    """Whether a bound is a number that unsigned bytes hold as another."""
    return isinstance(bound, int) and bound < 0
