"""The greatest or least element over any axes, as max pooling of images one window high.

`[B, N, C]` over N is an image of height N and width one, channels last already, pooled whole; the
least is the negated greatest of the negated. Axes that do not lie together go one run at a time.

Before:
    func.func @forward(%x: tensor<2x4x8xf32>) -> tensor<2x8xf32> {
      %y = aten.amax.default(%x, [1]) : (tensor<2x4x8xf32>) -> tensor<2x8xf32>
      func.return %y : tensor<2x8xf32>
    }
After:
    func.func @forward(%x: tensor<2x4x8xf32>) -> tensor<2x8xf32> {
      %0 = aten.view.default(%x, [2, 4, 1, 8]) : (tensor<2x4x8xf32>) -> tensor<2x4x1x8xf32>
      %1 = xnnpack.max_pooling_2d(%0, kernel=[4, 1], padding=[0, 0, 0, 0], stride=[4, 1], dilation=[1, 1]) : (tensor<2x4x1x8xf32>) -> tensor<2x1x1x8xf32>
      %y = aten.view.default(%1, [2, 8]) : (tensor<2x1x1x8xf32>) -> tensor<2x8xf32>
      func.return %y : tensor<2x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.building import axes, emit, static_dims, view
from stepwell.translate.rewrites.aten.ranges import is_never_nan
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.lower_reduction import runs_of


@dataclass(frozen=True)
class Greatest:
    """The greatest (or least) over runs of neighbouring axes, last run first."""

    op: SchemaOp
    shape: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LowerGreatest(Rewrite[Greatest]):
    """`aten.{amax,amin}` to max pooling."""

    name: ClassVar[str] = "lower-greatest"
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a maximum takes either of two zeros")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AmaxDefault, aten.AminDefault)

    def match(self, op: SchemaOp, program: Program) -> Greatest | Refusal | None:
        """Guards: float elements, a static shape."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("a dimension is symbolic")
        reduced = axes(op.arg("dim") or range(len(shape)), len(shape))
        return Greatest(op, shape, runs_of(reduced))

    def deviates(self, match: Greatest, program: Program) -> Deviation | None:
        """XNNPACK's pooling may take the number where one of two is NaN; torch takes the NaN."""
        if is_never_nan(match.op.operands[0], program):
            return None
        return Deviation("a NaN may be lost beside a number")

    def build(self, match: Greatest, rw: Rewriter) -> None:
        """Pool run by run from behind; the shape is restored by a view."""
        op, value, shape = match.op, match.op.operands[0], list(match.shape)
        is_least = isinstance(op, aten.AminDefault)
        if is_least:
            value = emit(rw, aten.NegDefault.make(value))
        for first, end in match.runs:
            count = prod(shape[first:end])
            if count > 1:
                value = view(rw, value, [prod(shape[:first]), count, 1, prod(shape[end:])])
                value = _pooled(rw, value, count)
            shape[first:end] = [1] * (end - first)
        if is_least:
            value = emit(rw, aten.NegDefault.make(value))
        rw.replace(op, [view(rw, value, dims(op.results[0].type))])


def _pooled(rw: Rewriter, image: SSAValue, height: int) -> SSAValue:
    pooling = xnnpack.MaxPooling2d.make(
        image, kernel=(height, 1), stride=(height, 1), padding=(0, 0, 0, 0), dilation=(1, 1)
    )
    return rw.insert(pooling).results[0]
