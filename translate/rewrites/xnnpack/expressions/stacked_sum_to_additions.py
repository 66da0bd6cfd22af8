"""The sum or mean over stacked values is their addition: nothing is copied next to each other.

`torch.stack(skips).sum(0)` is how skip connections, ensembles and experts are summed up. XNNPACK
copies each part and reduces over an outer axis, or cannot, where sizes are symbolic.

Before:
    %s = aten.cat.default([%x, %y, %z], 0) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<3x2x3xf32>
    %r = aten.mean.dim(%s, [0], true) : (tensor<3x2x3xf32>) -> tensor<1x2x3xf32>
After:
    %0 = aten.add.Tensor(%x, %y) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    %1 = aten.add.Tensor(%0, %z) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    %r = aten.mul.Scalar(%1, 0.3333333333333333) : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.lowerings.aten.products import is_normal
from stepwell.translate.rewrites.building import axis, put, same_type, view

MOST_PARTS = 32
"""The rounding of n additions adds up to n / 2 ulp of the largest partial sum."""


@dataclass(frozen=True)
class StackedSum:
    """A reduction over an axis along which each part has one element."""

    op: SchemaOp
    parts: tuple[SSAValue, ...]
    """What is added up: the values that are joined, or those that they are views of."""
    is_mean: bool


@dataclass(frozen=True)
class StackedSumToAdditions(Rewrite[StackedSum]):
    """`sum(cat(parts, d), [d])` of parts with one element along `d` to a chain of additions."""

    name: ClassVar[str] = "stacked-sum-to-additions"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SumDimIntList, aten.MeanDim)
    bound: ClassVar[Bound] = roundings(
        "the parts are added in another order; those of a few units cancel"
    )

    def match(self, op: SchemaOp, program: Program) -> StackedSum | Refusal | None:
        """Guards: normal form over one axis of a cat that nothing else reads; up to 32 parts."""
        joined = op.operands[0].owner
        if not isinstance(joined, aten.CatDefault):
            return None
        at = axis(joined.arg("dim"), len(dims(joined.results[0].type)))
        if not is_normal(op, (at,)):
            return Refusal("it reduces over other axes than the one that is joined")
        result, parts = op.results[0], tuple(joined.operands)
        if element(result.type) != f32:
            return Refusal("torch sums up in float32 and rounds once")
        if not all(same_type(part, result) for part in parts):
            return Refusal("a part has several elements along the axis")
        if len(parts) > MOST_PARTS:
            return Refusal(f"there are more than {MOST_PARTS} parts")
        if not joined.results[0].has_one_use():
            return Refusal("the joined value is read elsewhere")
        return StackedSum(op, _before_views(parts), isinstance(op, aten.MeanDim))

    def build(self, match: StackedSum, rw: Rewriter) -> None:
        """Add up in order, scale a mean, and view the total as the parts were."""
        result = match.op.results[0]
        total, *rest = match.parts
        for part in rest:
            total = put(rw, aten.AddTensor, total, part)
        if match.is_mean:
            total = put(rw, aten.MulScalar, total, 1 / len(match.parts))
        rw.replace(match.op, [view(rw, total, dims(result.type))])


def _before_views(parts: tuple[SSAValue, ...]) -> tuple[SSAValue, ...]:
    """What the parts are views of, if that has one type: `stack` gives each a unit axis."""
    views = [part.owner for part in parts if isinstance(part.owner, aten.ViewDefault)]
    seen = tuple(op.operands[0] for op in views)
    if len(seen) != len(parts) or not all(same_type(seen[0], other) for other in seen):
        return parts
    return seen
