"""Spell variance and standard deviation by means: var(x) = Σ(x − mean(x))² / (n − correction).

Before:
    %y = aten.var.correction(%x, [1], correction=1) : (tensor<2x8xf32>) -> tensor<2xf32>
After:
    %0 = aten.mean.dim(%x, [1], true) : (tensor<2x8xf32>) -> tensor<2x1xf32>
    %1 = aten.sub.Tensor(%x, %0) : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
    %2 = aten.mul.Tensor(%1, %1) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %3 = aten.mean.dim(%2, [1], true) : (tensor<2x8xf32>) -> tensor<2x1xf32>
    %4 = aten.mul.Scalar(%3, 1.1428571428571428) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %y = aten.view.default(%4, [2]) : (tensor<2x1xf32>) -> tensor<2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import (
    axes,
    cannot_be_viewed_as,
    put,
    reduced,
    view,
)
from stepwell.translate.rewrites.spelling.normalise_reduction import kept


@dataclass(frozen=True)
class Variance:
    """The variance over axes of `count` elements, its root if `is_deviation`."""

    op: SchemaOp
    axes: tuple[int, ...]
    count: int
    correction: float
    is_deviation: bool
    results: tuple[SSAValue | None, SSAValue | None]


@dataclass(frozen=True)
class VarianceToMeans(Rewrite[Variance]):
    """`var`, `std`, `var_mean`, `std_mean` to means of a difference and its square."""

    name: ClassVar[str] = "variance-to-means"
    bound: ClassVar[Bound] = roundings("torch computes it in one pass (Welford)")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.VarDefault,
        aten.VarDim,
        aten.VarCorrection,
        aten.StdDefault,
        aten.StdDim,
        aten.StdCorrection,
        aten.VarMeanDefault,
        aten.VarMeanDim,
        aten.VarMeanCorrection,
        aten.StdMeanCorrection,
    )

    def match(self, op: SchemaOp, program: Program) -> Variance | Refusal | None:
        """Guards: a float, axes of static size with more elements than the correction."""
        value, names = op.operands[0], op.SCHEMA.by_name
        if element(value.type) not in (f32, f64):
            return Refusal("torch accumulates this dtype in float32")
        held = dims(value.type)
        listed = op.arg("dim") if "dim" in names else None
        over = axes(listed, len(held)) if listed else tuple(range(len(held)))
        count = 1
        for at in over:
            size = held[at]
            if not isinstance(size, int):
                return Refusal("the reduced axis is symbolic")
            count *= size
        correction = correction_of(op)
        if count <= correction:
            return Refusal(f"{count} elements less {correction} leave nothing to divide by")
        refusal = cannot_be_viewed_as(value, kept(held, over))
        is_deviation = op.SCHEMA.operator.startswith("std")
        second = op.results[1] if len(op.results) > 1 else None
        results = (op.results[0], second)
        return refusal or Variance(op, over, count, correction, is_deviation, results)

    def build(self, match: Variance, rw: Rewriter) -> None:
        """Write mean, difference, square, its mean and the factor of the correction."""
        x = match.op.operands[0]
        average = reduced(rw, aten.MeanDim, x, match.axes)
        centred = put(rw, aten.SubTensor, x, average)
        square = put(rw, aten.MulTensor, centred, centred)
        value = reduced(rw, aten.MeanDim, square, match.axes)
        factor = match.count / (match.count - match.correction)
        if factor != 1:
            value = put(rw, aten.MulScalar, value, factor)
        if match.is_deviation:
            value = put(rw, aten.SqrtDefault, value)
        for old, new in zip(match.results, (value, average), strict=True):
            if old is not None and old.uses:
                rw.replace_value(old, view(rw, new, dims(old.type)))
        rw.erase(match.op)


def correction_of(op: SchemaOp) -> float:
    """What is subtracted from the count: 1 unless said otherwise."""
    if "correction" in op.SCHEMA.by_name:
        given = op.arg("correction")
        return 1 if given is None else given
    return 1 if op.arg("unbiased") else 0
