"""Leave a single a single where it is rounded to bfloat16 and widened again at once.

Before:
    func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
      %h = aten._to_copy.default(%x, dtype=bf16) : (tensor<4xf32>) -> tensor<4xbf16>
      %w = aten._to_copy.default(%h, dtype=f32) : (tensor<4xbf16>) -> tensor<4xf32>
      %y = aten.neg.default(%w) : (tensor<4xf32>) -> tensor<4xf32>
      func.return %y : tensor<4xf32>
    }
After:
    func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
      func.return %y : tensor<4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.copies import changes_layout

CASTS = (aten._ToCopyDefault, aten.ToDtype, aten.ToDtypeLayout, aten.TypeAsDefault)


@dataclass(frozen=True)
class Rounded:
    """A cast to single of what a single was rounded to."""

    op: SchemaOp
    narrowing: SchemaOp


@dataclass(frozen=True)
class CancelNarrowing(Rewrite[Rounded]):
    """`x.to(bfloat16).to(float32)` to `x`."""

    name: ClassVar[str] = "cancel-narrowing"
    anchors: ClassVar[tuple[type[Operation], ...]] = CASTS
    bound: ClassVar[Bound] = Bound(2**-8, 0.0, "a rounding to bfloat16 less")

    def match(self, op: SchemaOp, program: Program) -> Rounded | Refusal | None:
        """Both casts are of elements alone."""
        inner = op.operands[0].owner
        if not isinstance(inner, CASTS) or element(op.results[0].type) != f32:
            return None
        if element(op.operands[0].type) != bf16 or element(inner.operands[0].type) != f32:
            return None
        return changes_layout(op) or changes_layout(inner) or Rounded(op, inner)

    def build(self, match: Rounded, rw: Rewriter) -> None:
        """What was rounded."""
        rw.replace(match.op, [match.narrowing.operands[0]])
