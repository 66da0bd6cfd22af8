"""Spell `hardsigmoid` as torch computes it: clamp(x + 3, 0, 6) / 6.

`hardswish` stays whole, because targets have it.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.hardsigmoid.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = aten.add.Scalar(%x, 3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %1 = aten.clamp.default(%0, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.div.Scalar(%1, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as


@dataclass(frozen=True)
class Hardsigmoid:
    """A hardsigmoid."""

    op: SchemaOp


@dataclass(frozen=True)
class HardsigmoidToClamp(Rewrite[Hardsigmoid]):
    """`hardsigmoid(x)` to `clamp(x + 3, 0, 6) / 6`."""

    name: ClassVar[str] = "hardsigmoid-to-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.HardsigmoidDefault,)

    def match(self, op: SchemaOp, program: Program) -> Hardsigmoid | Refusal | None:
        """Half precision is computed in f32 by torch, with one rounding at the end."""
        if element(op.operands[0].type) not in (f32, f64):
            return Refusal("torch computes the hardsigmoid of this dtype in float32")
        if used_as_hardswish(op):
            return None
        return Hardsigmoid(op)

    def build(self, match: Hardsigmoid, rw: Rewriter) -> None:
        """Write the sum, the clamp and the quotient."""
        x, result = match.op.operands[0], match.op.results[0]
        shifted = emit(rw, aten.AddScalar.make(x, 3, result_types=[x.type]))
        clamped = emit(rw, aten.ClampDefault.make(shifted, 0, 6, result_types=[x.type]))
        new = aten.DivScalar.make(clamped, 6, result_types=[x.type])
        rw.replace(match.op, [emit_as(rw, new, result)])


def used_as_hardswish(op: SchemaOp) -> bool:
    """Whether every user multiplies it with its own operand: the hardswish recogniser's business."""
    users = [use.operation for use in op.results[0].uses]
    return bool(users) and all(
        isinstance(user, aten.MulTensor) and op.operands[0] in user.operands for user in users
    )
