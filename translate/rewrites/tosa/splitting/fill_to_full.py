"""`fill` and `copy`, which keep nothing but the shape of their first operand.

Before:
    %y = aten.copy.default(%x, %s) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
After:
    %y = aten.expand.default(%s, [2, 3]) : (tensor<3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import become, cast, expand, static_dims
from stepwell.translate.rewrites.tosa.operators.lowering import is_number


@dataclass(frozen=True)
class Filled:
    """An op that gives other values in the shape of its first operand."""

    op: SchemaOp
    shape: tuple[int, ...]


@dataclass(frozen=True)
class FillToFull(Rewrite[Filled]):
    """`fill` to `full_like`, `copy` to a conversion and an `expand`."""

    name: ClassVar[str] = "fill-to-full-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.FillScalar, aten.CopyDefault)

    def match(self, op: SchemaOp, program: Program) -> Filled | Refusal | None:
        """Known sizes and numbers."""
        shape = static_dims(op.results[0])
        if shape is None:
            return Refusal("the shape is symbolic")
        if isinstance(op, aten.FillScalar) and not is_number(op.arg("value")):
            return Refusal("the value is known only at run time")
        return Filled(op, shape)

    def build(self, match: Filled, rw: Rewriter) -> None:
        """One or two ops."""
        op, made = match.op, match.op.results[0].type
        if isinstance(op, aten.FillScalar):
            become(rw, op, aten.FullLikeDefault, op.operands[0], op.arg("value"))
            return
        rw.replace(op, [expand(rw, cast(rw, op.operands[1], element(made)), match.shape)])
