"""Give an op whose operands are floats of several widths the one width that it computes with.

torch widens halves beside singles by itself: rotary tables kept in halves meet queries computed in
f32, a float mask meets scores in halves. XNNPACK's nodes take one element type.

Before:
    func.func @forward(%x: tensor<4xf32>, %h: tensor<4xf16>) -> tensor<4xf32> {
      %y = aten.mul.Tensor(%x, %h) : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
      func.return %y : tensor<4xf32>
    }
After:
    func.func @forward(%x: tensor<4xf32>, %h: tensor<4xf16>) -> tensor<4xf32> {
      %0 = aten._to_copy.default(%h, dtype=f32) : (tensor<4xf16>) -> tensor<4xf32>
      %y = aten.mul.Tensor(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      func.return %y : tensor<4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.xnnpack.widen_halves import widened


@dataclass(frozen=True)
class MixedFloats:
    """An op on singles, and the operands that are none."""

    op: SchemaOp
    narrow: tuple[int, ...]


@dataclass(frozen=True)
class WidenMixedFloats(Rewrite[MixedFloats]):
    """Halves and bfloat16s beside singles, cast to singles: exact, and what torch does."""

    name: ClassVar[str] = "widen-mixed-floats"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AddTensor,
        aten.SubTensor,
        aten.MulTensor,
        aten.DivTensor,
        aten.MaximumDefault,
        aten.MinimumDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> MixedFloats | None:
        """A result of singles, and operands of which some are narrower floats."""
        if element(op.results[0].type) != f32:
            return None
        narrow = tuple(
            index
            for index, value in enumerate(op.operands)
            if isinstance(value.type, TensorType) and element(value.type) in (f16, bf16)
        )
        return MixedFloats(op, narrow) if narrow else None

    def build(self, match: MixedFloats, rw: Rewriter) -> None:
        """Casts in front of the op."""
        for index in match.narrow:
            rw.set_operand(match.op, index, widened(rw, match.op.operands[index]))
