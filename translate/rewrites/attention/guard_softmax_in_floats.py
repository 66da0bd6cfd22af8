"""Spell the guard of a softmax against rows that are −∞ throughout without booleans.

Where a mask is known only at run time the guard has to stay, and engines of floats have no
comparisons. A score s is −∞ exactly if `s/2 + M` is, M the largest finite number; clamped to
[0, 1] that is 0 for −∞ and 1 for all else. A row's sum of those, clamped again, is 0 if the row is
closed and 1 if it is open. A closed row is lifted to −M before the softmax (an open one to
−2M = −∞, that is, not at all), and multiplied by 0 after it. A row with a NaN is NaN throughout.

Before:
    %y = aten._safe_softmax.default(%s, 2) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
After:
    %a = aten.mul.Scalar(%s, 0.5) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %b = aten.add.Scalar(%a, 3.4028234663852886e+38) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %c = aten.clamp.default(%b, 0.0, 1.0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %d = aten.sum.dim_IntList(%c, [2], true) : (tensor<2x3x3xf32>) -> tensor<2x3x1xf32>
    %open = aten.clamp.default(%d, 0.0, 1.0) : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
    %e = aten.mul.Scalar(%open, -3.4028234663852886e+38) : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
    %f = aten.add.Scalar(%e, -3.4028234663852886e+38) : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
    %g = aten.maximum.default(%f, %s) : (tensor<2x3x1xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %p = aten._softmax.default(%g, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %y = aten.mul.Tensor(%p, %open) : (tensor<2x3x3xf32>, tensor<2x3x1xf32>) -> tensor<2x3x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.attention.remove_safe_softmax_guard import Guarded, guarded_softmax
from stepwell.translate.rewrites.building import emit, emit_as, reduced

LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class GuardSoftmaxInFloats(Rewrite[Guarded]):
    """`where(row is all −∞, 0, softmax(scores))` and `_safe_softmax` in floats alone."""

    name: ClassVar[str] = "guard-softmax-in-floats"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.WhereSelf, aten._SafeSoftmaxDefault)

    def match(self, op: SchemaOp, program: Program) -> Guarded | Refusal | None:
        """The pattern of the guard, in f32."""
        found = guarded_softmax(op, program)
        if found is None:
            return None
        if element(found.scores.type) != f32:
            return Refusal("the constants of the guard are those of float32")
        return found

    def build(self, match: Guarded, rw: Rewriter) -> None:
        """Which rows are open, the softmax over rows that all are, zeros for those that were not."""
        scores, at, result = match.scores, match.at, match.op.results[0]
        open_ = _clamped(rw, _scaled(rw, scores, 0.5, LARGEST))
        open_ = _clamped(rw, reduced(rw, aten.SumDimIntList, open_, [at]))
        least = _scaled(rw, open_, -LARGEST, -LARGEST)
        lifted = emit(rw, aten.MaximumDefault.make(least, scores))
        softmax = emit(rw, aten._SoftmaxDefault.make(lifted, at, False))
        rw.replace(match.op, [emit_as(rw, aten.MulTensor.make(softmax, open_), result)])


def _scaled(rw: Rewriter, value: SSAValue, factor: float, addend: float) -> SSAValue:
    return emit(rw, aten.AddScalar.make(emit(rw, aten.MulScalar.make(value, factor)), addend))


def _clamped(rw: Rewriter, value: SSAValue) -> SSAValue:
    return emit(rw, aten.ClampDefault.make(value, 0.0, 1.0))
