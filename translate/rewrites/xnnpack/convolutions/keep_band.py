"""Keep the elements between two diagonals, and fill the rest, by moving elements alone.

`tril`, `triu` and selections by a constant band mask (causal, sliding window) hide the elements
outside the band. Minima, sums and products would propagate a hidden NaN; moved rows do not. The
elements are laid out in rows of n + m − 1, each beginning n − 1 places before its matrix. Read as
rows that are one element longer, each row shifts one place further: diagonals become columns. The
columns of the band are cut out, padded with the fill value, and read back.
"""

from __future__ import annotations

from math import isnan, prod

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import is_open_once, overflows
from stepwell.translate.rewrites.slices.select_by_constant_mask import (
    SELECTIONS,
    filled,
    selection,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats, not_for_xnnpack

MOST_OF_TRIANGLES, MOST_OF_CHOICES = 1 << 17, 1 << 20
"""The most elements for which copies in a delegate are no slower than the kernel outside.

The kernel for a triangle copies rows; the kernel for a selection tests each element.
"""


@lowers(
    "aten.tril.default",
    "aten.triu.default",
    *SELECTIONS,
    to="aten",
    takes_empty=False,
    sample=("2x3x3xf32",),
)
def keep_band(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Build a matrix's band: diagonals become columns that are cut out, padded and read back."""
    is_triangle = isinstance(op, aten.TrilDefault | aten.TriuDefault)
    value, fill, mask = op.operands[0], 0.0, None
    if not is_triangle:
        key = weight_key(selection(op).mask)
        found = None if key is None else filled(op, b.program)
        if found is None or key is None or isnan(found.other):
            return None
        value, fill, mask = found.value, found.other, (key, found.kept)
        if value.type != op.results[0].type:
            refuse("the value is broadcast with its mask, or has another dtype")
    no_refusal(not_for_xnnpack(op) if is_triangle else not_floats((value, *op.results)))
    no_refusal(overflows(fill, element(value.type)))
    if len(dims(value.type)) < 2:
        refuse("the value is not a matrix")
    *heads, rows, columns = shape = dims(value.type)
    if not isinstance(rows, int) or not isinstance(columns, int) or not is_open_once(heads):
        refuse("the matrix, or more than one size before it, is symbolic")
    if weight_key(value) is not None:
        refuse("the value is a constant")
    largest = MOST_OF_TRIANGLES if is_triangle else MOST_OF_CHOICES
    # For one element of a dynamic batch: both forms take proportionally longer for all.
    count = prod(size for size in shape if isinstance(size, int))
    if count > largest:
        refuse(f"the band is cut out by copies: {count} elements are more than {largest}")
    kept = None if mask is None else b.weights.get(mask[0]) == mask[1]
    low, high = _diagonals(op, kept, rows, columns)
    x, width = Value(value, b).view(extent_of(heads), rows, columns), rows + columns - 1
    x = _reread(_padded(x, (rows - 1, 0, 0, 1), 0.0), rows, width + 1)
    first, end = low + rows - 1, high + rows
    x = _padded(x.slice(2, first, end), (first, width + 1 - end, 0, 1), fill)
    x = _reread(x, rows + 1, width)
    return x.slice(1, 0, rows).slice(2, rows - 1, width).view(*shape)


def _diagonals(op: SchemaOp, mask: torch.Tensor | None, rows: int, columns: int) -> tuple[int, int]:
    """Return the smallest and largest `column − row` of the elements that an op keeps."""
    low, high = 1 - rows, columns - 1
    if mask is not None:
        band = band_of(mask, rows, columns)
        if band is None:
            refuse("the mask is not a band between two diagonals")
        low, high = band
    elif isinstance(op, aten.TrilDefault):
        high = min(op.arg("diagonal"), high)
    else:
        low = max(op.arg("diagonal"), low)
    if low > high:
        refuse("the mask keeps no element")
    return low, high


def band_of(mask: torch.Tensor, rows: int, columns: int) -> tuple[int, int] | None:
    """Return the smallest and largest `column − row` of a mask, if the mask is such a band."""
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


def _padded(value: Value, amounts: tuple[int, ...], fill: float) -> Value:
    """Pad the last two axes of `[…, rows, columns]`; the amounts for the columns come first."""
    *heads, rows, columns = value.shape
    shape: list[Dim] = [*heads, rows + sum(amounts[2:]), columns + sum(amounts[:2])]
    return value.call(aten.ConstantPadNdDefault, list(amounts), fill, shape=shape)


def _reread(value: Value, rows: int, columns: int) -> Value:
    """Return the first elements of each matrix as rows of another length."""
    count, *matrix = value.shape
    flat = value.view(count, extent_of(matrix))
    return flat.slice(1, 0, rows * columns).view(count, rows, columns)


RULES = lowerings_of(__name__)
