"""Spell a cast to another tensor's dtype as a cast to that dtype.

Models in half precision compute their norms in float and come back by `x.type_as(input)`; what the
other tensor holds has no say, and no target has a node for such a pair.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %y: tensor<4xf16>) -> tensor<2x3xf16> {
      %z = aten.type_as.default(%x, %y) : (tensor<2x3xf32>, tensor<4xf16>) -> tensor<2x3xf16>
      func.return %z : tensor<2x3xf16>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %y: tensor<4xf16>) -> tensor<2x3xf16> {
      %z = aten._to_copy.default(%x, dtype=f16) : (tensor<2x3xf32>) -> tensor<2x3xf16>
      func.return %z : tensor<2x3xf16>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class TypeAsToCopy(Respell):
    """`x.type_as(y)` to `x.to(y.dtype)`."""

    name: ClassVar[str] = "type-as-to-copy"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.TypeAsDefault,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | None:
        """A cast that changes the dtype; one that does not goes by `remove-noop-cast`."""
        source, other = op.operands
        if element(source.type) == element(other.type):
            return None
        given = {"self": source, "dtype": element(other.type)}
        return Respelled(op, aten._ToCopyDefault, given)
