"""Leave a single a single where it is rounded to bfloat16 and widened again at once.

One of the two casts stands around an op that was widened (`widen-bfloat`). Where both are the
model's own it asks for the rounding, and gets it.

Before:
    %h = aten._to_copy.default(%x, dtype=bf16) : (tensor<4xf32>) -> tensor<4xbf16>
    %w = aten._to_copy.default(%h, dtype=f32) : (tensor<4xbf16>) -> tensor<4xf32>
    %y = aten.neg.default(%w) : (tensor<4xf32>) -> tensor<4xf32>
After:
    %y = aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.diagnostics import node_name
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.spelling.copies import changes_layout

CASTS = (aten._ToCopyDefault, aten.ToDtype, aten.ToDtypeLayout, aten.TypeAsDefault)
BEYOND = Deviation("a single beyond 3.39e38 stays finite between bfloat16s", True, everywhere=True)


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
    bound: ClassVar[Bound] = roundings("a rounding to bfloat16 less")
    deviation: ClassVar[Deviation | None] = BEYOND

    def match(self, op: SchemaOp, program: Program) -> Rounded | Refusal | None:
        """Both casts are of elements alone, and not both of them are the model's own."""
        inner = op.operands[0].owner
        if not isinstance(inner, CASTS) or element(op.results[0].type) != f32:
            return None
        if element(op.operands[0].type) != bf16 or element(inner.operands[0].type) != f32:
            return None
        readers = [use.operation for use in op.results[0].uses]
        if is_of_its_own(inner, [inner.operands[0].owner]) and is_of_its_own(op, readers):
            return Refusal("the model rounds to bfloat16 and back itself")
        return changes_layout(op) or changes_layout(inner) or Rounded(op, inner)

    def build(self, match: Rounded, rw: Rewriter) -> None:
        """What was rounded."""
        rw.replace(match.op, [match.narrowing.operands[0]])


def is_of_its_own(cast: Operation, beside: Sequence[object]) -> bool:
    """Whether a cast has a node of its own: what widens an op gives its casts the op's node."""
    name = node_name(cast.location)
    if name is None:
        return False
    return all(node_name(op.location) != name for op in beside if isinstance(op, Operation))
