"""Remove casts to the dtype a tensor has already.

Importers of half-precision models and attention decompositions write `x.to(x.dtype)` freely.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.to.dtype(%x, f32) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten._to_copy.default(%a, dtype=f32) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.neg.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand
from stepwell.translate.rewrites.aten.remove_copy import changes_layout


@dataclass(frozen=True)
class RemoveNoopCast(ForwardOperand):
    """`x.to(x.dtype)` to `x`."""

    name: ClassVar[str] = "remove-noop-cast"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ToDtype,
        aten.ToDtypeLayout,
        aten.ToDevice,
        aten.ToOther,
        aten._ToCopyDefault,
        aten.TypeAsDefault,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """Whether the cast also asks for another memory format."""
        return changes_layout(op) or False
