"""Means over the last axis as linear layers: XNNPACK reduces over no axes but image planes.

`mean(x) = x · (1/C, …, 1/C)ᵀ`. A fully-connected node with one output was faster here than a
centering matrix or global pooling (measured); its bias adds epsilon for free. The weight is packed,
so nothing depends on memory that a runtime may free.
"""

from __future__ import annotations

from math import inf, prod, sqrt
from typing import Protocol

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.range_analysis import is_within
from stepwell.translate.rewrites.building import emit, put, slice_axis

ROWS = roundings("sums in another order; rows of nearly equal elements cancel")
"""The rounding errors of a norm written with row statistics, and of torch's kernel."""


def row_mean(rw: Rewriter, value: SSAValue, plus: float | None = None) -> SSAValue:
    """Build `mean(value, -1, keepdim) + plus` as a linear layer; `[..., C]` to `[..., 1]`."""
    return weighted_rows(rw, value, None, plus)


WIDEST_ROW = 1 << 24
"""The most elements of the constant that sums a row; a wider one would exceed most models."""


def too_wide(width: int) -> Refusal | None:
    """The constant that sums a row is as wide as the row."""
    if width <= WIDEST_ROW:
        return None
    return Refusal(f"the row that sums up {width} elements would be a constant of as many")


def weighted_rows(
    rw: Rewriter, value: SSAValue, factor: float | None, plus: float | None
) -> SSAValue:
    """Build `factor * sum(value, -1, keepdim) + plus`; a `factor` of None is 1/C."""
    value_element = element(value.type)
    shape = dims(value.type)
    width = shape[-1]
    assert isinstance(width, int), "the last axis has a symbolic size"
    dtype = torch_dtype(value_element)
    number = 1.0 / width if factor is None else factor
    weight = rw.constant(torch.full((1, width), number, dtype=dtype), "row_mean")
    bias = None
    if plus is not None:
        bias = rw.constant(torch.full((1,), plus, dtype=dtype), "epsilon")
    return emit(
        rw,
        aten.LinearDefault.make(
            value, weight, bias, result_types=[tensor([*shape[:-1], 1], value_element)]
        ),
    )


def squares_overflow(op: SchemaOp, program: Program) -> Deviation | None:
    """Return the deviation of another order of a norm's squares: none, where all are small."""
    value = op.operands[0]
    sizes = [size if isinstance(size, int) else inf for size in dims(value.type)]
    # Eight: subtracting the mean at most doubles a number, and sums round.
    largest = sqrt(torch.finfo(torch_dtype(element(value.type))).max / (8 * prod(sizes)))
    return REORDERED.unless(is_within(value, -largest, largest, program))


def normalize_rows(rw: Rewriter, value: SSAValue, eps: float, *, centered: bool) -> SSAValue:
    """Build `(x − mean) / sqrt(var + eps)` over the last axis; without the mean if it is zero."""
    return normalize(rw, value, eps, row_mean, centered=centered)


def less_first(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Build `x − x[0]` along the last axis: a constant row becomes zero, and so does its mean.

    For every row this loses less than a rounding of its largest number, which is at most √n times
    the divisor of the norm.
    """
    first = slice_axis(rw, value, len(dims(value.type)) - 1, 0, 1)
    return put(rw, aten.SubTensor, value, first)


class Mean(Protocol):
    """Builds `mean(value, …, keepdim) + plus`."""

    def __call__(self, rw: Rewriter, value: SSAValue, plus: float | None = None) -> SSAValue: ...


def normalize(
    rw: Rewriter, value: SSAValue, eps: float, mean: Mean, *, centered: bool = False
) -> SSAValue:
    """Build `(x − mean) / sqrt(var + eps)` with means as `mean` builds them."""
    kept = [value.type]
    if not centered:
        value = emit(rw, aten.SubTensor.make(value, mean(rw, value), result_types=kept))
    square = emit(rw, aten.MulTensor.make(value, value, result_types=kept))
    variance = mean(rw, square, plus=eps)
    scale = put(rw, aten.RsqrtDefault, variance)
    return emit(rw, aten.MulTensor.make(value, scale, result_types=kept))


def scale_and_shift(
    rw: Rewriter, value: SSAValue, weight: SSAValue | None, bias: SSAValue | None
) -> SSAValue:
    """Build `value * weight + bias`, broadcast over leading axes."""
    if weight is not None:
        value = put(rw, aten.MulTensor, value, weight)
    return value if bias is None else put(rw, aten.AddTensor, value, bias)
