"""Canonicalization: mask scores by adding −∞ instead of filling, as attention adds its mask.

`masked_fill(scores, mask, -inf)` and `where(mask, scores, least)` give the same numbers as a sum
with a term. The term is −∞, or the least number of float32, where the mask hides scores, and 0
elsewhere; the least number absorbs every finite score. If a constant is added to the scores already
(the slopes of ALiBi), the mask is put into it. A computed mask selects between the two numbers for
each of its own elements, instead of for all scores. NaN is the exception (`limit-by-mask` says
which scores may be NaN).

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
from math import inf, prod
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import dtype_name, f16, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static
from stepwell.ir.weights import recipe
from stepwell.translate.range_analysis import is_never_nan, is_within
from stepwell.translate.range_analysis.assumptions import trusts_no_nan
from stepwell.translate.rewrites.attention.attention_pattern import SOFTMAX
from stepwell.translate.rewrites.attention.limit_by_mask import LimitByMask
from stepwell.translate.rewrites.attention.recognize_attention import (
    leads_to_product,
    splits_leading,
)
from stepwell.translate.rewrites.building import axis, emit
from stepwell.translate.rewrites.sizes.open_rows import ABSORBED
from stepwell.translate.rewrites.slices.select_by_constant_mask import filled
from stepwell.translate.rewrites.xnnpack.nodes.guards import FLOATS, not_held

LARGEST_TERM = 1 << 22
"""The most elements of a term that includes the mask, and may be larger than either."""


@recipe("closed")
def closed(term: torch.Tensor, mask: torch.Tensor, *, kept: bool, fill: float) -> torch.Tensor:
    """Return the term where the mask equals `kept`, `fill` elsewhere."""
    return torch.where(mask == kept, term, fill)


@dataclass(frozen=True)
class Closed:
    """Scores where `mask` equals `kept`, `fill` elsewhere; `term` is a constant added before."""

    op: SchemaOp
    mask: SSAValue
    kept: bool
    scores: SSAValue
    fill: float
    term: str | None


@dataclass(frozen=True)
class AddMaskBeforeSoftmax(Rewrite[Closed]):
    """`masked_fill` or `where` between a product and a softmax to a sum with a mask of −∞."""

    name: ClassVar[str] = "add-mask-before-softmax"
    anchors: ClassVar[tuple[type[Operation], ...]] = LimitByMask.anchors

    def match(self, op: SchemaOp, program: Program) -> Closed | Refusal | None:
        """Guards: a number that hides; scores of at least the mask's shape, read by a softmax."""
        if not feeds_softmax(op.results[0]) or not_held(op.results[0]):
            return None
        found = filled(op, program)
        if found is None or found.value.type != op.results[0].type:
            return None
        mask, kept, scores, fill = found.mask, found.kept, found.value, found.fill
        scores_element = element(scores.type)
        absorbs = fill == torch.finfo(torch_dtype(scores_element)).min and scores_element != f16
        if scores_element not in FLOATS or not (fill == -inf or absorbs) or weight_key(scores):
            return None
        is_constant = weight_key(mask) is not None
        if not is_constant:
            mask = unexpanded(mask)
        parts = sum_with_constant(scores, mask) if is_constant else None
        scores, term = parts or (scores, None)
        is_small = is_within(scores, -ABSORBED, ABSORBED, program)
        if not is_small and (
            not leads_to_product(scores) or trusts_no_nan(scores, program) is not None
        ):
            return None
        return Closed(op, mask, kept, scores, fill, term)

    def deviates(self, match: Closed, program: Program) -> Deviation | None:
        """A sum with −∞ is NaN for a score of NaN or ∞, which the mask would have hidden."""
        is_small = is_within(match.scores, -ABSORBED, ABSORBED, program)
        seen = Deviation("a score of NaN or ∞ that the mask hides is seen")
        return seen.unless(is_small, is_never_nan(match.scores, program))

    def build(self, match: Closed, rw: Rewriter) -> None:
        """Add 0, or the term, to scores that the mask keeps, and the number to the others."""
        result = match.op.results[0]
        added = self._added(match, rw)
        total = aten.AddTensor.make(match.scores, added, result_types=[result.type])
        rw.replace(match.op, [emit(rw, total)])

    def _added(self, match: Closed, rw: Rewriter) -> SSAValue:
        key, scores_element = weight_key(match.mask), element(match.scores.type)
        if key is None:
            numbers = [
                torch.tensor([n], dtype=torch_dtype(scores_element)) for n in (0.0, match.fill)
            ]
            sides = [rw.constant(one, "closed") for one in numbers]
            if not match.kept:
                sides.reverse()
            return emit(rw, aten.WhereSelf.make(match.mask, *sides))
        if match.term is not None:
            keys = [match.term, key]
            return rw.weight(rw.weights.derive("closed", keys, kept=match.kept, fill=match.fill))
        numbers = {"free": 0.0, "fill": match.fill, "dtype": dtype_name(scores_element)}
        return rw.weight(rw.weights.derive("limits", [key], kept=match.kept, **numbers))


def unexpanded(mask: SSAValue) -> SSAValue:
    """Return the mask before it was repeated along axes that it has with size one."""
    while isinstance(owner := mask.owner, aten.ExpandDefault):
        if len(dims(owner.operands[0].type)) != len(dims(mask.type)):
            break
        mask = owner.operands[0]
    return mask


def sum_with_constant(scores: SSAValue, mask: SSAValue) -> tuple[SSAValue, str] | None:
    """Return both sides of a sum of all scores and a constant that can take the mask."""
    owner = scores.owner
    if not isinstance(owner, aten.AddTensor) or owner.arg("alpha") != 1:
        return None
    for one, other in (owner.operands, tuple(reversed(owner.operands))):
        key = weight_key(other)
        if key is None or one.type != scores.type or element(other.type) != element(one.type):
            continue
        shape = torch.broadcast_shapes(_sizes(other), _sizes(mask))
        if prod(shape) <= LARGEST_TERM:
            return one, key
    return None


def _sizes(weight: SSAValue) -> tuple[int, ...]:
    """Whether the value is a constant of static sizes."""
    return tuple(size for size in dims(weight.type) if isinstance(size, int))


def feeds_softmax(value: SSAValue) -> bool:
    """Whether the one reader of scores, through views of leading axes, is a softmax of rows.

    Attention adds its mask to the scores of its softmax. An attention of dynamic length tests
    outside whether rows are fully masked, so there the whole mask stays outside.
    """
    while len(users := [use.operation for use in value.uses]) == 1:
        (user,) = users
        if isinstance(user, aten.ScaledDotProductAttentionDefault):
            return is_static(value.type) and user.operand("attn_mask") is value
        if isinstance(user, SchemaOp) and user.name in SOFTMAX:
            rank = len(dims(value.type))
            return axis(user.arg("dim"), rank) == rank - 1
        if not isinstance(user, aten.ViewDefault) or not splits_leading(user):
            return False
        value = user.results[0]
    return False
