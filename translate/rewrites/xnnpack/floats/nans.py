"""Numbers that are +0, and NaN where a value has a NaN: what keeps NaNs in a delegate.

XNNPACK's maximum and minimum may take the number where one of two is NaN. What keeps every NaN, and
only a NaN, is arithmetic: `0 / (1 + |x|)` is 0 for every number, infinities too, and NaN for a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.declared.numerics import numerics_of
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.range_analysis import interval, is_never_nan
from stepwell.translate.rewrites.building import cast, emit, put, reduced
from stepwell.translate.rewrites.norms.row_statistics import too_wide, weighted_rows


def carries_nans(values: Sequence[SSAValue], program: Program) -> bool:
    """Whether the lowering has to keep NaNs of values that may hold one, by arithmetic beside them.

    Where activations are ordinary numbers nothing is kept, where nothing may deviate the kernels
    outside keep it.
    """
    if numerics_of(program.context) != "torch":
        return False
    return not all(is_never_nan(value, program) for value in values)


def zero_or_nan(rw: Rewriter, size: SSAValue) -> SSAValue:
    """`0 / (1 + size)` of numbers from 0 to ∞: +0, or NaN where the size is NaN."""
    return _zero_over(rw, emit(rw, aten.AddScalar.make(size, 1.0)))


def _zero_over(rw: Rewriter, divisor: SSAValue) -> SSAValue:
    zero = rw.constant(torch.zeros(1, dtype=torch_dtype(element(divisor.type))), "zero")
    return emit(rw, aten.DivTensor.make(zero, divisor, result_types=[divisor.type]))


def nans_along(rw: Rewriter, x: SSAValue, axes: Sequence[int], program: Program) -> SSAValue:
    """+0 for each row along some axes, which stay with size one; NaN for a row with a NaN in it.

    A sum of squares, or of what is not negative, is NaN for nothing else. Halves are summed as
    singles: XNNPACK's sums of halves are limited, on some CPUs a NaN to −∞.
    """
    x_element = element(x.type)
    x = cast(rw, x, f32)
    if interval(x, program).low < 0:
        x = put(rw, aten.MulTensor, x, x)
    width = dims(x.type)[-1]
    if list(axes) == [len(dims(x.type)) - 1] and isinstance(width, int) and not too_wide(width):
        nan_or_zero = _zero_over(rw, weighted_rows(rw, x, 1.0, 1.0))  # One node adds the 1 too.
    else:
        nan_or_zero = zero_or_nan(rw, reduced(rw, aten.SumDimIntList, x, axes))
    return cast(rw, nan_or_zero, x_element)
