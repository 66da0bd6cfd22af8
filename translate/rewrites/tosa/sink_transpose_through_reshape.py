"""Move a transpose behind a reshape that merges or splits only axes that stay together.

The image of a patch embedding leaves its convolution as NHWC, is transposed to NCHW, flattened to
`[N, C, H·W]` and transposed to `[N, H·W, C]`: behind the reshape both transposes cancel.

Before:
    func.func @main(%x: tensor<1x2x3x8xf32>) -> tensor<1x6x8xf32> {
      %a = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x2x3x8xf32>) -> tensor<1x8x2x3xf32>
      %s = tosa.const_shape {values = dense<[1, 8, 6]> : tensor<3xindex>} : () -> !tosa.shape<3>
      %b = tosa.reshape %a, %s : (tensor<1x8x2x3xf32>, !tosa.shape<3>) -> tensor<1x8x6xf32>
      %y = tosa.transpose %b {perms = array<i32: 0, 2, 1>} : (tensor<1x8x6xf32>) -> tensor<1x6x8xf32>
      func.return %y : tensor<1x6x8xf32>
    }
After:
    func.func @main(%x: tensor<1x2x3x8xf32>) -> tensor<1x6x8xf32> {
      %0 = tosa.const_shape {values = dense<[1, 6, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
      %1 = tosa.reshape %x, %0 : (tensor<1x2x3x8xf32>, !tosa.shape<3>) -> tensor<1x6x8xf32>
      %b = tosa.transpose %1 {perms = array<i32: 0, 2, 1>} : (tensor<1x6x8xf32>) -> tensor<1x8x6xf32>
      %y = tosa.transpose %b {perms = array<i32: 0, 2, 1>} : (tensor<1x8x6xf32>) -> tensor<1x6x8xf32>
      func.return %y : tensor<1x6x8xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.merge_layout import transposed
from stepwell.translate.rewrites.tosa.sizes import Size, is_spelled, magnitude

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Source axes and result axes that hold the same elements."""


@dataclass(frozen=True)
class Reshaped:
    """The reshape of a transpose, group by group, in the order of the transposed axes."""

    op: t.ReshapeOp
    transpose: t.TransposeOp
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class SinkTransposeThroughReshape(Rewrite[Reshaped]):
    """`reshape(transpose(x))` to `transpose(reshape(x))`."""

    name: ClassVar[str] = "sink-transpose-through-reshape"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.ReshapeOp,)

    def match(self, op: t.ReshapeOp, program: Program) -> Reshaped | Refusal | None:
        """Merged axes must be neighbours in front of the transpose too."""
        transpose = op.input1.owner
        if not isinstance(transpose, t.TransposeOp):
            return None
        if not is_spelled(op.input1, op.output):
            return Refusal("the shape is not known")
        if not leads_to_transpose(op):
            return None
        groups = factor(shape_of(op.input1), shape_of(op.output))
        order = ints(transpose.perms)
        for axes, _ in groups:
            held = [order[axis] for axis in axes]
            if held != list(range(held[0], held[0] + len(held))) if held else False:
                return Refusal("the reshape merges axes that the transpose brought together")
        return Reshaped(op, transpose, groups)

    def build(self, match: Reshaped, rw: Rewriter) -> None:
        """Reshape group by group in the source's order, then transpose."""
        b = Builder(rw)
        order = ints(match.transpose.perms)
        result = shape_of(match.op.output)
        by_source = sorted(match.groups, key=lambda group: order[group[0][0]] if group[0] else -1)
        target = [axis for _, axes in by_source for axis in axes]
        value = b.reshape(match.transpose.input, [result[axis] for axis in target])
        back = [target.index(axis) for axis in range(len(result))]
        rw.replace(match.op, [transposed(value, back, b)])


def leads_to_transpose(op: t.ReshapeOp) -> bool:
    """Whether a reader transposes: only then does a transpose further down help."""
    return any(isinstance(use.operation, t.TransposeOp) for use in op.output.uses)


def factor(source: Sequence[Size], target: Sequence[Size]) -> tuple[Group, ...]:
    """The finest groups of consecutive axes with equal numbers of elements."""
    groups: list[Group] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first, second = i, j
        left: Size = 1
        right: Size = 1
        if i < len(source):
            left, i = source[i], i + 1
        if j < len(target):
            right, j = target[j], j + 1
        while left != right:
            if magnitude(left) < magnitude(right):
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(second, j))))
    return tuple(groups)
