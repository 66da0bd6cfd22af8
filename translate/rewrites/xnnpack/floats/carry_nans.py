"""Limit by tensors within a delegate, and keep each NaN.

XNNPACK's maximum and minimum may take the number where one of two is NaN. What keeps every NaN, and
only a NaN, is arithmetic: `0 / (1 + |x|)` is 0 for every number, infinities too, and NaN for a NaN.
It is subtracted, since −0 − 0 is −0.

Before:
    %y = aten.clamp.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %0 = aten.maximum.default(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = aten.abs.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = aten.abs.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %3 = aten.add.Tensor(%1, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %4 = aten.add.Scalar(%3, 1.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %5 = aten.div.Tensor(dense<0.0>, %4) : (tensor<1xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.sub.Tensor(%0, %5) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.numerics import numerics_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import become, cast, emit, put, reduced
from stepwell.translate.rewrites.norms.row_statistics import too_wide, weighted_rows
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.values import interval, is_never_nan


@dataclass(frozen=True)
class Limited:
    """A clamp to tensors, and which of them (and of what is clamped) may hold a NaN."""

    op: SchemaOp
    unsure: tuple[SSAValue, ...]


@dataclass(frozen=True)
class CarryNans(Rewrite[Limited]):
    """`clamp` to tensors as maximum and minimum, less 0 or NaN."""

    name: ClassVar[str] = "carry-nans"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampTensor,)
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a maximum takes either of two zeros")

    def match(self, op: SchemaOp, program: Program) -> Limited | Refusal | None:
        """Guards: XNNPACK's floats, a NaN that may be there and has to stay."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        if program.context.option("numerics", "torch") != "torch":
            return None  # Asked for by name, it does what it says.
        unsure = [value for value in op.operands if not is_never_nan(value, program)]
        return Limited(op, tuple(dict.fromkeys(unsure))) if unsure else None

    def build(self, match: Limited, rw: Rewriter) -> None:
        """The extrema, as torch takes them, and the term."""
        op = match.op
        value, low, high = op.operand("self"), op.operand("min"), op.operand("max")
        assert value is not None
        if low is not None:
            value = emit(rw, aten.MaximumDefault.make(value, low))
        if high is not None:
            value = emit(rw, aten.MinimumDefault.make(value, high))
        sizes = [emit(rw, aten.AbsDefault.make(one)) for one in match.unsure]
        total = sizes[0]
        for size in sizes[1:]:
            total = emit(rw, aten.AddTensor.make(total, size))
        become(rw, op, aten.SubTensor, value, zero_or_nan(rw, total))


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
    held = element(x.type)
    x = cast(rw, x, f32)
    if interval(x, program).low < 0:
        x = put(rw, aten.MulTensor, x, x)
    width = dims(x.type)[-1]
    if list(axes) == [len(dims(x.type)) - 1] and isinstance(width, int) and not too_wide(width):
        found = _zero_over(rw, weighted_rows(rw, x, 1.0, 1.0))  # One node adds the 1 too.
    else:
        found = zero_or_nan(rw, reduced(rw, aten.SumDimIntList, x, axes))
    return cast(rw, found, held)
