"""Reshape once in front of several slices instead of behind each of them.

`qkv` as `[3, 1, H, N, D]` is sliced into q, k and v, and each is reshaped to `[H, N, D]`; in front
of the slices one reshape serves all.

Before:
    %x = tosa.transpose %w {perms = array<i32: 1, 0, 2, 3>} : (tensor<1x2x3x4xf32>) -> tensor<2x1x3x4xf32>
    %b = tosa.const_shape {values = dense<[1, 0, 0, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %n = tosa.const_shape {values = dense<[1, 1, 3, 4]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %a = tosa.slice %x, %b, %n : (tensor<2x1x3x4xf32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x3x4xf32>
    %s = tosa.const_shape {values = dense<[3, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %a, %s : (tensor<1x1x3x4xf32>, !tosa.shape<2>) -> tensor<3x4xf32>
After:
    %x = tosa.transpose %w {perms = array<i32: 1, 0, 2, 3>} : (tensor<1x2x3x4xf32>) -> tensor<2x1x3x4xf32>
    %0 = tosa.const_shape {values = dense<[6, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %1 = tosa.reshape %x, %0 : (tensor<2x1x3x4xf32>, !tosa.shape<2>) -> tensor<6x4xf32>
    %2 = tosa.const_shape {values = dense<[3, 0]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %3 = tosa.const_shape {values = dense<[3, 4]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.slice %1, %2, %3 : (tensor<6x4xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.constants import shape_value
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_spelled


@dataclass(frozen=True)
class HoistedReshape:
    """`op` reshapes `slice`; its rows are rows `first` and on of the reshaped source."""

    op: t.ReshapeOp
    slice: t.SliceOp
    rows: int
    first: int


@dataclass(frozen=True)
class HoistReshapeOverSlice(Rewrite[HoistedReshape]):
    """`reshape(slice(x))` to `slice(reshape(x))` for slices of the leading axis."""

    name: ClassVar[str] = "hoist-reshape-over-slice"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.ReshapeOp,)

    def match(self, op: t.ReshapeOp, program: Program) -> HoistedReshape | Refusal | None:
        """A slice of the leading axis alone, on whole rows, of what was laid out anew anyway."""
        cut = op.input1.owner
        if not isinstance(cut, t.SliceOp):
            return None
        if not is_spelled(op.output, cut.input1, cut.output):
            return Refusal("the shape is not known")
        start, size = shape_value(cut.start), shape_of(cut.output)
        held, result = shape_of(cut.input1), shape_of(op.output)
        if start is None or size[1:] != held[1:]:
            return Refusal("the slice is not of the leading axis alone")
        if not isinstance(cut.input1.owner, t.TransposeOp | t.ReshapeOp):
            return Refusal("what is sliced is not a reshape or transpose")
        if not result:
            return Refusal("the result is a scalar")
        row, unit = prod(result[1:]), prod(held[1:])
        if (start[0] * unit) % row or prod(held) % row:
            return Refusal("the slice does not start at a row of the result")
        return HoistedReshape(op, cut, prod(held) // row, start[0] * unit // row)

    def build(self, match: HoistedReshape, rw: Rewriter) -> None:
        """Reshape, then slice."""
        b, result = Builder(rw), shape_of(match.op.output)
        whole = b.reshape(match.slice.input1, (match.rows, *result[1:]))
        start = b.sizes([match.first, *[0] * (len(result) - 1)])
        held = element(match.op.output.type)
        value = b.op(t.SliceOp, [whole, start, b.sizes(result)], result, held)
        rw.replace(match.op, [value])
