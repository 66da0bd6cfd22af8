"""Compute +0 for numbers and NaN for NaN, to keep NaNs inside a delegate.

XNNPACK's maximum and minimum may return the number where one of two operands is NaN. The expression
`0 / (1 + |x|)` keeps NaNs: it is 0 for every number, including infinities, and NaN for a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.numerics import Proof, numerics_of
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.translate.decompositions.values import Value
from stepwell.translate.range_analysis import interval, is_never_nan
from stepwell.translate.rewrites.norms.row_statistics import too_wide, weighted_rows


def carries_nans(values: Sequence[SSAValue], program: Program) -> bool:
    """Whether the lowering must add arithmetic that keeps NaNs of values that may be NaN.

    If activations are declared finite, no NaN needs to be kept. If no deviation is allowed, kernels
    outside delegates keep the NaN.
    """
    if numerics_of(program.context) != "torch":
        return False
    return not all(is_never_nan(value, program) for value in values)


def keeps_nans(value: SSAValue, program: Program) -> Proof | None:
    """Whether the maximum of a row keeps a NaN, or the row has none."""
    if carries_nans([value], program):
        return Proof("additional arithmetic keeps a NaN")
    return is_never_nan(value, program)


def zero_or_nan(size: Value) -> Value:
    """Compute `0 / (1 + size)` of numbers from 0 to ∞: +0, or NaN where the size is NaN."""
    return _zero_over(size + 1.0)


def _zero_over(divisor: Value) -> Value:
    zero = divisor.constant(torch.zeros(1, dtype=torch_dtype(divisor.dtype)), "zero")
    return zero.call(aten.DivTensor, divisor, shape=divisor.shape)


def nans_along(x: Value, axes: Sequence[int], program: Program) -> Value:
    """Compute +0 for each row along some axes (kept with size one); NaN for a row that has a NaN.

    A sum of squares, or of nonnegative values, is NaN only if an element is NaN. Halves are summed
    in single precision: XNNPACK's sums of halves are limited, and on some CPUs they turn a NaN into
    −∞.
    """
    dtype, x = x.dtype, x.cast(f32)
    if interval(x.ssa, program).low < 0:
        x = x * x
    width = x.shape[-1]
    if list(axes) == [x.rank - 1] and isinstance(width, int) and not too_wide(width):
        return _zero_over(weighted_rows(x, 1.0, 1.0)).cast(dtype)  # One node adds the 1 too.
    return zero_or_nan(x.reduce(aten.SumDimIntList, axes)).cast(dtype)
