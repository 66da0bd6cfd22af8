"""Spell `softshrink` by a clamp: what lies in the middle is taken from itself.

    softshrink(x) = x − clamp(x, −λ, λ)

Outside the middle both compute x − λ or x + λ; inside, x − x is 0 (torch's zero has the sign of x);
a NaN stays one.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.softshrink.default(%x, 0.25) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %c = aten.clamp.default(%x, -0.25, 0.25) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.sub.Tensor(%x, %c) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.aten.building import emit, emit_as


@dataclass(frozen=True)
class Shrunk:
    """A softshrink by a number."""

    op: SchemaOp
    width: float


@dataclass(frozen=True)
class SoftshrinkToClamp(Rewrite[Shrunk]):
    """`aten.softshrink` to `aten.clamp` and a subtraction."""

    name: ClassVar[str] = "softshrink-to-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SoftshrinkDefault,)
    bound: ClassVar[Bound] = Bound(0.0, 2.0**-149, "a zero may lose its sign")

    def match(self, op: SchemaOp, program: Program) -> Shrunk | Refusal | None:
        """The width is a number."""
        width = op.arg("lambd")
        if isinstance(width, SSAValue):
            return Refusal("the width is known only at run time")
        return Shrunk(op, float(width))

    def build(self, match: Shrunk, rw: Rewriter) -> None:
        """The clamp, and the difference."""
        x, result = match.op.operands[0], match.op.results[0]
        middle = aten.ClampDefault.make(x, -match.width, match.width, result_types=[x.type])
        rest = aten.SubTensor.make(x, emit(rw, middle), result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, rest, result)])
