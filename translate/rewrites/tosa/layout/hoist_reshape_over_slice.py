"""Hoisting: one reshape before several slices replaces the reshapes after them.

`qkv` as `[3, 1, H, N, D]` is sliced into q, k and v, and each is reshaped to `[H, N, D]`. One
reshape before the slices serves all three.

rule hoist-reshape-over-slice
    `reshape(slice(x))` to `slice(reshape(x))` for slices of the leading axis.
Before:
    %a = tosa.slice(%x, …)
    %y = tosa.reshape(%a, …)
After:
    %w = in_shape(%x, in_rows(%x, %y))
    %y = sliced(%w, %x, $start, %y)
where is_spelled(%x, %a, %y) else "the shape is not known"
with $start = start_of(%a)
where is_of_the_leading_axis(%x, %a) else "the slice is not of the leading axis alone"
where is_laid_out(%x) for cost else "what is sliced is not a reshape or transpose"
where has_axes(%y) else "the result is a scalar"
where starts_at_a_row(%x, $start, %y) else "the slice does not start at a row of the result"
for %x = tosa.transpose(%z, perms=[1, 0, 2, 3]) : (…) -> $X
for %z = "tensor<1x2x3x4xf32>", $X = "tensor<2x1x3x4xf32>"
for $start = [1, 0, 0, 0], $size = [1, 1, 3, 4], $shape = [3, 4]
not for $start = [0, 0, 1, 0], $size = [2, 1, 1, 4], $shape = [2, 4]
not for %x = "tensor<2x1x3x4xf32>"
not for $shape = "!tosa.shape<1>"
not for %z = "tensor<1x2x1x1xf32>", $X = "tensor<2x1x1x1xf32>", $size = [1, 1, 1, 1], $shape = []
not for %z = "tensor<1x3x2x2xf32>", $X = "tensor<3x1x2x2xf32>", $size = [2, 1, 2, 2], $shape = [1, 8]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.constants import shape_value
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.layout import merge_layout
from stepwell.translate.rewrites.tosa.operators import sizes
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rules import read_rules


def start_of(part: SSAValue) -> Sequence[int] | Refusal:
    """Return the begin of a slice of the leading axis."""
    cut = part.owner
    assert isinstance(cut, t.SliceOp)
    return shape_value(cut.start) or Refusal("the slice is not of the leading axis alone")


def is_of_the_leading_axis(value: SSAValue, part: SSAValue) -> bool:
    """Whether a slice takes all axes but the first as a whole."""
    return shape_of(part)[1:] == shape_of(value)[1:]


def is_laid_out(value: SSAValue) -> bool:
    """Whether the value is the result of a reshape or a transpose."""
    return isinstance(value.owner, t.TransposeOp | t.ReshapeOp)


def has_axes(value: SSAValue) -> bool:
    """Whether the tensor is not a scalar."""
    return bool(shape_of(value))


def starts_at_a_row(value: SSAValue, start: Sequence[int], rows: SSAValue) -> bool:
    """Whether a slice begins at the start of a row in the shape of the reshaped result."""
    row, unit = _row(rows), prod(shape_of(value)[1:])
    return not ((start[0] * unit) % row or prod(shape_of(value)) % row)


def _row(rows: SSAValue) -> Any:
    return prod(shape_of(rows)[1:])


def in_rows(value: SSAValue, rows: SSAValue) -> tuple[Any, ...]:
    """Return the source's shape, cut into rows of the reshaped result."""
    return prod(shape_of(value)) // _row(rows), *shape_of(rows)[1:]


def sliced(
    rw: Rewriter, value: SSAValue, source: SSAValue, start: Sequence[int], rows: SSAValue
) -> SSAValue:
    """Slice the same elements out of the reshaped source."""
    b, result = Builder(rw), shape_of(rows)
    first = start[0] * prod(shape_of(source)[1:]) // _row(rows)
    places = b.sizes([first, *[0] * (len(result) - 1)])
    return b.op(t.SliceOp, [value, places, b.sizes(result)], result, element(rows.type))


(HoistReshapeOverSlice,) = RULES = read_rules(__doc__, vars(sizes) | vars(merge_layout) | globals())
