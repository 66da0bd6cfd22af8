"""A running sum is the sum with itself moved by one, two, four … places.

XNNPACK has no scan, and the kernel beside it is one more cut between delegates. A place never meets
what stands behind it, so that a NaN or an infinity goes the way it goes in torch; a product with a
triangle of ones would multiply it by zero, and spread it backwards.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.cumsum.default(%x, -1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = aten.slice.Tensor(%x, 1, 0, 2, 1) : (tensor<2x3xf32>) -> tensor<2x2xf32>
      %1 = aten.constant_pad_nd.default(%0, [1, 0], 0) : (tensor<2x2xf32>) -> tensor<2x3xf32>
      %2 = aten.add.Tensor(%x, %1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %3 = aten.slice.Tensor(%2, 1, 0, 1, 1) : (tensor<2x3xf32>) -> tensor<2x1xf32>
      %4 = aten.constant_pad_nd.default(%3, [2, 0], 0) : (tensor<2x1xf32>) -> tensor<2x3xf32>
      %y = aten.add.Tensor(%2, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import axis, emit, slice_axis, static_dims
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack

MOST_STEPS = 12
"""Additions of all elements, in place of one pass of a kernel that adds one by one."""


@dataclass(frozen=True)
class RunningSum:
    """A `cumsum` and its axis, counted from the front."""

    op: SchemaOp
    at: int
    size: int


@dataclass(frozen=True)
class CumsumToAdditions(Rewrite[RunningSum]):
    """`cumsum` along n elements to log₂ n additions of the value moved along."""

    name: ClassVar[str] = "cumsum-to-additions"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.CumsumDefault,)
    bound: ClassVar[Bound] = roundings("the sums are taken in another order")

    def match(self, op: SchemaOp, program: Program) -> RunningSum | Refusal | None:
        """Guards: singles that XNNPACK holds, known sizes, an axis that is short enough."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        x, result = op.operands[0], op.results[0]
        if element(x.type) != f32 or x.type != result.type:
            return Refusal("torch sums up in float32 and rounds once")
        shape = static_dims(x)
        if not shape:
            return Refusal("the sizes are symbolic, or there is no axis")
        at = axis(op.arg("dim"), len(shape))
        if (steps := (shape[at] - 1).bit_length()) > MOST_STEPS:
            return Refusal(f"it takes {steps} additions, above {MOST_STEPS}")
        return RunningSum(op, at, shape[at])

    def deviates(self, match: RunningSum, program: Program) -> Deviation | None:
        """The sums of some places are taken in another order."""
        return REORDERED if match.size > 2 else None

    def build(self, match: RunningSum, rw: Rewriter) -> None:
        """Each step adds what twice as many places before have."""
        total = match.op.operands[0]
        in_front, moved = 2 * (len(dims(total.type)) - 1 - match.at), 1
        while moved < match.size:
            kept = slice_axis(rw, total, match.at, 0, match.size - moved)
            amounts = [0] * in_front + [moved, 0]
            back = aten.ConstantPadNdDefault.make(kept, amounts, 0, result_types=[total.type])
            total = emit(rw, aten.AddTensor.make(total, emit(rw, back), result_types=[total.type]))
            moved *= 2
        rw.replace(match.op, [total])
