"""Keep the elements between two diagonals, and fill the rest, by moving elements alone.

`tril`, `triu` and selections by a constant band mask (causal, sliding window) hide the elements
outside the band. Minima, sums and products would propagate a hidden NaN; moved rows do not. The
elements are laid out in rows of n + m − 1, each beginning n − 1 places before its matrix. Read as
rows that are one element longer, each row shifts one place further: diagonals become columns. The
columns of the band are cut out, padded with the fill value, and read back.

Before:
    func.func @forward(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> {
      %y = aten.tril.default(%x) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
      func.return %y : tensor<2x3x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> {
      %0 = aten.constant_pad_nd.default(%x, [2, 0, 0, 1], 0.0) : (tensor<2x3x3xf32>) -> tensor<2x4x5xf32>
      %1 = aten.view.default(%0, [2, 20]) : (tensor<2x4x5xf32>) -> tensor<2x20xf32>
      %2 = aten.slice.Tensor(%1, 1, 0, 18, 1) : (tensor<2x20xf32>) -> tensor<2x18xf32>
      %3 = aten.view.default(%2, [2, 3, 6]) : (tensor<2x18xf32>) -> tensor<2x3x6xf32>
      %4 = aten.slice.Tensor(%3, 2, 0, 3, 1) : (tensor<2x3x6xf32>) -> tensor<2x3x3xf32>
      %5 = aten.constant_pad_nd.default(%4, [0, 3, 0, 1], 0.0) : (tensor<2x3x3xf32>) -> tensor<2x4x6xf32>
      %6 = aten.view.default(%5, [2, 24]) : (tensor<2x4x6xf32>) -> tensor<2x24xf32>
      %7 = aten.slice.Tensor(%6, 1, 0, 20, 1) : (tensor<2x24xf32>) -> tensor<2x20xf32>
      %8 = aten.view.default(%7, [2, 4, 5]) : (tensor<2x20xf32>) -> tensor<2x4x5xf32>
      %9 = aten.slice.Tensor(%8, 1, 0, 3, 1) : (tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
      %y = aten.slice.Tensor(%9, 2, 2, 5, 1) : (tensor<2x3x5xf32>) -> tensor<2x3x3xf32>
      func.return %y : tensor<2x3x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, prod
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.attention.limit_by_mask import LimitByMask
from stepwell.translate.rewrites.building import (
    emit,
    is_open_once,
    overflows,
    slice_axis,
    view,
)
from stepwell.translate.rewrites.slices.select_by_constant_mask import filled
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats, not_for_xnnpack

MOST_OF_TRIANGLES, MOST_OF_CHOICES = 1 << 17, 1 << 20
"""The most elements for which copies in a delegate are no slower than the kernel outside.

The kernel for a triangle copies rows; the kernel for a selection tests each element.
"""


@dataclass(frozen=True)
class Band:
    """`value`, `[…, n, m]`, where column − row is from `low` to `high`; `fill` elsewhere."""

    op: SchemaOp
    value: SSAValue
    low: int
    high: int
    fill: float


@dataclass(frozen=True)
class KeepBand(Rewrite[Band]):
    """`tril`, `triu` and selections by a band of diagonals to paddings and slices."""

    name: ClassVar[str] = "keep-band"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.TrilDefault,
        aten.TriuDefault,
        *LimitByMask.anchors,
    )

    def match(self, op: SchemaOp, program: Program) -> Band | Refusal | None:
        """Guards: floats of known sizes, not too many; a band, and a number outside it."""
        if isinstance(op, aten.TrilDefault | aten.TriuDefault):
            value, fill, mask = op.operands[0], 0.0, None
        else:
            chosen = choice(op, program)
            if chosen is None:
                return None
            value, fill, mask = chosen
        refusal = not_for_xnnpack(op) if mask is None else not_held_whole(op, value)
        if refusal is not None:
            return refusal
        if (refusal := overflows(fill, element(value.type))) is not None:
            return refusal
        if len(dims(value.type)) < 2:
            return Refusal("it is no matrix")
        *heads, rows, columns = dims(value.type)
        if not isinstance(rows, int) or not isinstance(columns, int) or not is_open_once(heads):
            return Refusal("the matrix, or more than one size before it, is symbolic")
        if weight_key(value) is not None:
            return Refusal("it is a constant")
        largest = MOST_OF_TRIANGLES if mask is None else MOST_OF_CHOICES
        count = prod(size for size in (*heads, rows, columns) if isinstance(size, int))
        if (
            count > largest
        ):  # For one element of a dynamic batch: both forms take proportionally longer for all.
            return Refusal(f"the band of {count} elements is cut out in copies, above {largest}")
        low, high = 1 - rows, columns - 1
        if mask is not None:
            band = band_of(mask, rows, columns)
            if band is None:
                return Refusal("the mask is no band between two diagonals of its matrix")
            low, high = band
        elif isinstance(op, aten.TrilDefault):
            high = min(op.arg("diagonal"), high)
        else:
            low = max(op.arg("diagonal"), low)
        if low > high:
            return Refusal("nothing of the value is kept")
        return Band(op, value, low, high, fill)

    def build(self, match: Band, rw: Rewriter) -> None:
        """Turn diagonals into columns; cut out those of the band, pad them and read them back."""
        value = match.value
        *heads, rows, columns = shape = dims(value.type)
        assert isinstance(rows, int) and isinstance(columns, int)
        count, width = extent_of(heads), rows + columns - 1
        value = view(rw, value, [count, rows, columns])
        value = pad(rw, value, (rows - 1, 0, 0, 1), 0.0)
        value = reread(rw, value, (count, rows, width + 1))
        first, end = match.low + rows - 1, match.high + rows
        value = slice_axis(rw, value, 2, first, end)
        value = pad(rw, value, (first, width + 1 - end, 0, 1), match.fill)
        value = reread(rw, value, (count, rows + 1, width))
        value = slice_axis(rw, slice_axis(rw, value, 1, 0, rows), 2, rows - 1, width)
        rw.replace(match.op, [view(rw, value, shape)])


def choice(op: SchemaOp, program: Program) -> tuple[SSAValue, float, torch.Tensor] | None:
    """Return the value that a constant mask selects where it is true, and the fill value."""
    found = filled(op, program)
    if found is None:
        return None
    key = weight_key(found.mask)
    if key is None or isnan(found.fill):
        return None
    return found.value, found.fill, program.weights.get(key) == found.kept


def not_held_whole(op: SchemaOp, value: SSAValue) -> Refusal | None:
    """Whether the value has the type of the result, and XNNPACK represents it."""
    if value.type != op.results[0].type:
        return Refusal("the value is broadcast with its mask, or has another dtype")
    return not_floats((value, *op.results))


def band_of(mask: torch.Tensor, rows: int, columns: int) -> tuple[int, int] | None:
    """Return the least and the greatest column − row of a mask, if it is that band."""
    if mask.shape[-2:] != (rows, columns) or mask.numel() != rows * columns:
        return None
    matrix = mask.reshape(rows, columns)
    diagonals = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    kept = diagonals[matrix]
    if not kept.numel():
        return None
    low, high = int(kept.min()), int(kept.max())
    is_band = torch.equal(matrix, (diagonals >= low) & (diagonals <= high))
    return (low, high) if is_band else None


def pad(rw: Rewriter, value: SSAValue, amounts: tuple[int, ...], fill: float) -> SSAValue:
    """Return the padding of the last two axes of `[…, rows, columns]`, the columns' first."""
    *heads, rows, columns = dims(value.type)
    shape = [*heads, rows + sum(amounts[2:]), columns + sum(amounts[:2])]
    result = tensor(shape, element(value.type))
    return emit(
        rw, aten.ConstantPadNdDefault.make(value, list(amounts), fill, result_types=[result])
    )


def reread(rw: Rewriter, value: SSAValue, shape: tuple[Dim, int, int]) -> SSAValue:
    """Return the first elements of each matrix as rows of another length."""
    count, *matrix = dims(value.type)
    flat = view(rw, value, [count, extent_of(matrix)])
    return view(rw, slice_axis(rw, flat, 1, 0, shape[1] * shape[2]), shape)
