"""Compute means over the last axis by linear layers: XNNPACK reduces image planes only.

`mean(x) = x · (1/C, …, 1/C)ᵀ`. A fully-connected node with one output was faster here than a
centering matrix or global pooling (measured); its bias adds epsilon for free. The weight is packed,
so XNNPACK does not point to memory that a runtime may free.
"""

from __future__ import annotations

from math import inf, prod, sqrt
from typing import Protocol

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation, Proof
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.range_analysis import is_within

ROWS = roundings("sums in another order; rows of nearly equal elements cancel")
"""The rounding errors of a norm written with row statistics, and of torch's kernel."""


def row_mean(value: Value, plus: float | None = None) -> Value:
    """Build `mean(value, -1, keepdim) + plus` as a linear layer; `[..., C]` to `[..., 1]`."""
    return weighted_rows(value, None, plus)


WIDEST_ROW = 1 << 24
"""The most elements of the constant that sums a row; a wider one would exceed most models."""


def too_wide(width: int) -> Refusal | None:
    """Refuse a very wide row: its sum needs a constant of the same width."""
    if width <= WIDEST_ROW:
        return None
    return Refusal(f"a sum of {width} elements would need a constant of {width} elements")


def weighted_rows(value: Value, factor: float | None, plus: float | None = None) -> Value:
    """Build `factor * sum(value, -1, keepdim) + plus`; a `factor` of None is 1/C."""
    *rows, width = value.shape
    assert isinstance(width, int), "the last axis has a symbolic size"
    number, dtype = 1.0 / width if factor is None else factor, torch_dtype(value.dtype)
    weight = value.constant(torch.full((1, width), number, dtype=dtype), "row_mean")
    bias = None
    if plus is not None:
        bias = value.constant(torch.full((1,), plus, dtype=dtype), "epsilon")
    return value.call(aten.LinearDefault, weight, bias, shape=(*rows, 1))


def squares_overflow(op: SchemaOp, program: Program, count: int = 1) -> Deviation | None:
    """Return the deviation of summing squares in another order: none if the `count` first operands,
    or the differences of two of them, are small.
    """
    small: list[Proof | None] = []
    for value in op.operands[:count]:
        sizes = [size if isinstance(size, int) else inf for size in dims(value.type)]
        # Eight: subtracting a mean or a point at most doubles a number, and sums round.
        most = torch.finfo(torch_dtype(element(value.type))).max
        largest = sqrt(most / (8 * max(1, prod(sizes))))
        small.append(is_within(value, -largest, largest, program))
    return REORDERED.unless(*small)


def less_first(value: Value) -> Value:
    """Build `x − x[0]` along the last axis, so that a constant row and its mean become zero.

    The error is less than one rounding of the row's largest number, which is at most √n times
    the divisor of the norm.
    """
    return value - value.slice(value.rank - 1, 0, 1)


class Mean(Protocol):
    """Builds `mean(value, …, keepdim) + plus`."""

    def __call__(self, value: Value, plus: float | None = None) -> Value: ...


def normalize(
    value: Value, eps: float, mean: Mean = row_mean, *, is_centered: bool = False
) -> Value:
    """Build `(x − mean) / sqrt(var + eps)` with means as `mean` builds them.

    If the mean of `x` is known to be zero, it is not computed.
    """
    if not is_centered:
        value = value - mean(value)
    return value * mean(value * value, plus=eps).call(aten.RsqrtDefault)
