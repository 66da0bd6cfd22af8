"""Casts between single and half precision are nodes too.

Before:
    %y = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xf16>) -> tensor<2x4xf32>
After:
    %y = xnnpack.convert(%x) : (tensor<2x4xf16>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.copies import changes_layout
from stepwell.translate.rewrites.xnnpack.guards import not_held

PAIRS = ((f16, f32), (f32, f16))


@dataclass(frozen=True)
class LowerFloatCast(Rewrite[SchemaOp]):
    """`aten._to_copy` and `aten.to.dtype` between f16 and f32 to `xnnpack.convert`; exact."""

    name: ClassVar[str] = "lower-float-cast"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._ToCopyDefault, aten.ToDtype)
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: f16 to f32 or back, no other memory format, a value XNNPACK can hold."""
        given = op.operands[0]
        if (element(given.type), element(op.results[0].type)) not in PAIRS:
            return None
        if weight_key(given) is not None:
            return Refusal("its operand is a constant; XNNPACK needs one that is computed")
        return changes_layout(op) or not_held(given) or op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The node."""
        op = match
        new = rw.insert(xnnpack.Convert.make(op.operands[0], result=op.results[0].type))
        rw.replace(op, [new.results[0]])
