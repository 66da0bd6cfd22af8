"""Mask scores by adding −∞ where a model fills them with it: attention is recognised by its sum.

`masked_fill(scores, mask, -inf)` and `where(mask, scores, least)` with a constant mask give the same
numbers as a sum with −∞, or with the least number of float32, where the mask closes, and with 0
elsewhere: that number absorbs every finite score. A NaN is the exception (`limit-by-mask` says
which scores may hold one).

Before:
    %m = stepwell.weight <"#causal"> "constant" : tensor<3x3xi1>
    %s = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
    %f = aten.where.ScalarOther(%m, %s, -inf) : (tensor<3x3xi1>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    %y = aten._softmax.default(%f, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
After:
    %0 = stepwell.weight <"#limits.7cb7bc1f6aa7"> "constant" : tensor<3x3xf32>
    %s = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
    %f = aten.add.Tensor(%s, %0) : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>
    %y = aten._softmax.default(%f, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import dtype_name, f16, torch_dtype
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.aten.attention_pattern import SOFTMAX
from stepwell.translate.rewrites.aten.building import axis, emit
from stepwell.translate.rewrites.aten.ranges import is_bounded, is_never_nan
from stepwell.translate.rewrites.aten.recognise_attention import leads_to_product, splits_leading
from stepwell.translate.rewrites.xnnpack.limit_by_mask import LimitByMask, Masked


@dataclass(frozen=True)
class AddMaskBeforeSoftmax(Rewrite[Masked]):
    """`masked_fill` or `where` between a product and a softmax to a sum with a constant."""

    name: ClassVar[str] = "add-mask-before-softmax"
    anchors: ClassVar[tuple[type[Operation], ...]] = LimitByMask.anchors

    def match(self, op: SchemaOp, program: Program) -> Masked | Refusal | None:
        """Guards: those of `limit-by-mask`; a number that closes; scores that a softmax reads."""
        if not feeds_softmax(op.results[0]):
            return None
        found = LimitByMask().match(op, program)
        if not isinstance(found, Masked):
            return None
        scores = found.value
        if scores.type != op.results[0].type or not leads_to_product(scores):
            return None
        held = element(scores.type)
        absorbs = found.other == torch.finfo(torch_dtype(held)).min and held != f16
        return found if found.other == -inf or absorbs else None

    def deviates(self, match: Masked, program: Program) -> Deviation | None:
        """A sum with −∞ is NaN for a score of NaN or ∞, which the mask would have hidden.

        Scores behind norms are never infinite, and a NaN there is one of the row that gives the
        value too: hidden or not, the attention is NaN.
        """
        if is_never_nan(match.value, program) and is_bounded(match.value, program):
            return None
        if is_bounded(match.value, program):
            return Deviation("a score of NaN that the mask hides is seen", accepted=True)
        return Deviation("a score of NaN or ∞ that the mask hides is seen")

    def build(self, match: Masked, rw: Rewriter) -> None:
        """The scores plus 0 where the mask keeps them and plus the number elsewhere."""
        dtype = dtype_name(element(match.value.type))
        key = rw.weights.derive(
            "limits", [match.mask], kept=match.kept, free=0.0, fill=match.other, dtype=dtype
        )
        result = match.op.results[0]
        total = aten.AddTensor.make(match.value, rw.weight(key), result_types=[result.type])
        rw.replace(match.op, [emit(rw, total)])


def feeds_softmax(value: SSAValue) -> bool:
    """Whether the one reader of scores, behind views of the leading axes, is a softmax of rows."""
    while len(users := [use.operation for use in value.uses]) == 1:
        (user,) = users
        if isinstance(user, SchemaOp) and user.name in SOFTMAX:
            rank = len(dims(value.type))
            return axis(user.arg("dim"), rank) == rank - 1
        if not isinstance(user, aten.ViewDefault) or not splits_leading(user):
            return False
        value = user.results[0]
    return False
