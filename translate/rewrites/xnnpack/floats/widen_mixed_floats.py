"""Give an op whose operands are of several element types the one that it computes with.

torch widens halves, integers and truths beside singles by itself: rotary tables kept in halves meet
queries computed in f32, sizes and masks meet places. XNNPACK's nodes take one element type.

Before:
    %y = aten.mul.Tensor(%x, %h) : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
After:
    %0 = aten._to_copy.default(%h, dtype=f32) : (tensor<4xf16>) -> tensor<4xf32>
    %y = aten.mul.Tensor(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute, Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.xnnpack.floats.widen_halves import widened


@dataclass(frozen=True)
class MixedFloats:
    """An op that gives singles, and the operands that are none."""

    op: SchemaOp
    narrow: tuple[int, ...]


@dataclass(frozen=True)
class WidenMixedFloats(Rewrite[MixedFloats]):
    """Halves, bfloat16s, integers and truths beside singles, cast to singles as torch does."""

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
        """A result of singles, and operands of which some are floats and some no singles."""
        if element(op.results[0].type) != f32:
            return None
        held = {
            index: element(value.type)
            for index, value in enumerate(op.operands)
            if isinstance(value.type, TensorType)
        }
        narrow = tuple(i for i, one in held.items() if one in (f16, bf16) or is_whole(one))
        if all(map(is_whole, held.values())):
            return None  # A quotient of integers: nothing a delegate has waits for it.
        return MixedFloats(op, narrow) if narrow else None

    def build(self, match: MixedFloats, rw: Rewriter) -> None:
        """Casts in front of the op."""
        for index in match.narrow:
            rw.set_operand(match.op, index, widened(rw, match.op.operands[index]))


def is_whole(held: Attribute) -> bool:
    """Whether an element type is one of integers or truths, which torch makes floats of."""
    return isinstance(held, IntegerType)
