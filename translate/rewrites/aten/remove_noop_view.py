"""Remove reshapes, permutations and slices whose result is their operand.

Two of these guards need a word. A slice that keeps the type keeps every element: fewer would be a
shorter axis. A permutation must be the identity; equal types say nothing, `[4, 4]` may transpose.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.view.default(%x, [2, 3]) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.permute.default(%a, [0, -1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %c = aten.slice.Tensor(%b, 1, 0, 9223372036854775807) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %d = aten.repeat.default(%c, [1, 1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.neg.default(%d) : (tensor<2x3xf32>) -> tensor<2x3xf32>
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
from stepwell.translate.rewrites.aten.building import axis
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand


@dataclass(frozen=True)
class RemoveNoopView(ForwardOperand):
    """An op that moves nothing to its operand."""

    name: ClassVar[str] = "remove-noop-view"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ViewDefault,
        aten.ViewCopyDefault,
        aten._UnsafeViewDefault,
        aten.ReshapeDefault,
        aten.FlattenUsingInts,
        aten.SqueezeDefault,
        aten.SqueezeDim,
        aten.SqueezeDims,
        aten.PermuteDefault,
        aten.PermuteCopyDefault,
        aten.SliceTensor,
        aten.SliceCopyTensor,
        aten.RepeatDefault,
        aten.ConstantPadNdDefault,
        aten.RollDefault,
        aten.FlipDefault,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> bool:
        """Whether elements change places although the type stays."""
        if isinstance(op, aten.PermuteDefault | aten.PermuteCopyDefault):
            rank = len(op.arg("dims"))
            return [axis(d, rank) for d in op.arg("dims")] != list(range(rank))
        if isinstance(op, aten.ConstantPadNdDefault):
            return any(amount != 0 for amount in op.arg("pad"))
        if isinstance(op, aten.RollDefault):
            return any(shift != 0 for shift in op.arg("shifts"))
        if isinstance(op, aten.FlipDefault):
            return bool(op.arg("dims"))
        return False
