"""Canonicalization: mask scores by adding −∞ instead of filling, as attention adds its mask.

`masked_fill(scores, mask, -inf)` and `where(mask, scores, least)` give the same numbers as a sum
with a term. The term is −∞, or the least number of float32, where the mask hides scores, and 0
elsewhere; the least number absorbs every finite score. If a constant is added to the scores already
(the slopes of ALiBi), the mask is put into it. A computed mask selects between the two numbers for
each of its own elements, instead of for all scores. NaN is the exception (`limit-by-mask` says
which scores may be NaN).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import dtype_name, f16, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element, is_static
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers
from stepwell.translate.range_analysis import is_never_nan, is_within
from stepwell.translate.range_analysis.assumptions import trusts_no_nan
from stepwell.translate.rewrites.attention.attention_pattern import SCORES, WEIGHTS
from stepwell.translate.rewrites.attention.limit_by_mask import limits
from stepwell.translate.rewrites.attention.recognize_attention import (
    leads_to_product,
    splits_leading,
)
from stepwell.translate.rewrites.building import axis, emit
from stepwell.translate.rewrites.sizes.open_rows import ABSORBED
from stepwell.translate.rewrites.slices.select_by_constant_mask import (
    SELECTIONS,
    Selection,
    filled,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import FLOATS, not_held

LARGEST_TERM = 1 << 22
"""The most elements of a term that includes the mask, and may be larger than either."""


@recipe("closed")
def closed(term: torch.Tensor, mask: torch.Tensor, *, kept: bool, fill: float) -> torch.Tensor:
    """Compute the constant addend of attention scores: `term` where the mask equals `kept`, and
    `fill` elsewhere.
    """
    return torch.where(mask == kept, term, fill)


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of adding −∞ to a score of NaN or ∞, which gives NaN; filling hides the
    score.
    """
    found = masked_scores(op, program)
    assert found is not None, "it is a match"
    is_small = is_within(found[0].value, -ABSORBED, ABSORBED, program)
    seen = Deviation("a score of NaN or ∞ that the mask hides is seen")
    return seen.unless(is_small, is_never_nan(found[0].value, program))


@lowers(
    *SELECTIONS,
    to="aten",
    deviation=_loses,
    sample=f"""
    %m = stepwell.weight <"m"> "constant" : tensor<3x3xi1>
    {SCORES}
    %f = aten.where.ScalarOther(%m, %s, -inf) : (tensor<3x3xi1>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
    {WEIGHTS.replace("%s", "%f")}
    """,
)
def add_mask_to_scores(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write masked scores as a sum: 0 or a constant where the mask keeps them, the fill elsewhere."""
    found = masked_scores(op, b.program)
    if found is None:
        return None
    sides, term = found
    scores = sides.value
    if is_within(scores, -ABSORBED, ABSORBED, b.program) is None and (
        not leads_to_product(scores) or trusts_no_nan(scores, b.program) is not None
    ):
        return None
    return Value(scores, b).call(aten.AddTensor, _added(sides, term, b))


def masked_scores(op: SchemaOp, program: Program) -> tuple[Selection, str | None] | None:
    """Return the scores that a mask fills, and the constant that is added to them.

    No score is below the fill, which is −∞ or the least number of float32.
    """
    result = op.results[0]
    if not is_read_as_scores(result) or not_held(result):
        return None
    sides = filled(op, program)
    if sides is None or sides.value.type != result.type:
        return None
    dtype, fill = element(result.type), sides.other
    absorbs = fill == torch.finfo(torch_dtype(dtype)).min and dtype != f16
    if dtype not in FLOATS or not (fill == -inf or absorbs) or weight_key(sides.value):
        return None
    if weight_key(sides.mask) is None:
        return replace(sides, mask=unexpanded(sides.mask)), None
    scores, term = sum_with_constant(sides.value, sides.mask) or (sides.value, None)
    return replace(sides, value=scores), term


def _added(sides: Selection, term: str | None, b: Rewriter) -> SSAValue:
    """Build the tensor that is added to attention scores: a constant, or a `where` if the mask is
    computed at run time.
    """
    key, dtype = weight_key(sides.mask), element(sides.value.type)
    if key is None:
        numbers = [torch.tensor([n], dtype=torch_dtype(dtype)) for n in (0.0, sides.other)]
        terms = [b.constant(number, "closed") for number in numbers]
        if not sides.kept:
            terms.reverse()
        return emit(b, aten.WhereSelf.make(sides.mask, *terms))
    options = {"kept": sides.kept, "fill": sides.other}
    if term is not None:
        return b.weight(b.weights.derive("closed", [term, key], **options))
    options |= {"free": 0.0, "dtype": dtype_name(dtype)}
    return b.weight(b.weights.derive(limits.__name__, [key], **options))


def unexpanded(mask: SSAValue) -> SSAValue:
    """Return the operand of an `expand` of a mask along axes of size one."""
    while isinstance(owner := mask.owner, aten.ExpandDefault):
        if len(dims(owner.operands[0].type)) != len(dims(mask.type)):
            break
        mask = owner.operands[0]
    return mask


def sum_with_constant(scores: SSAValue, mask: SSAValue) -> tuple[SSAValue, str] | None:
    """Return (scores, key of the constant) of a sum with a constant, if the constant broadcast to
    the mask's shape is small enough to store; else None.
    """
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
    """Whether a value is a constant with static sizes."""
    return tuple(size for size in dims(weight.type) if isinstance(size, int))


def is_read_as_scores(value: SSAValue) -> bool:
    """Whether the one reader of scores, through views of leading axes, normalizes rows.

    An attention op of static length that reads the value as its mask is also accepted. With a
    dynamic length, ops outside the delegate test whether rows are fully masked, so the mask is not
    moved into it.
    """
    while len(users := [use.operation for use in value.uses]) == 1:
        (user,) = users
        if isinstance(user, aten.ScaledDotProductAttentionDefault):
            return is_static(value.type) and user.operand("attn_mask") is value
        if isinstance(user, SchemaOp) and is_of(user, "probabilities"):
            rank = len(dims(value.type))
            return axis(user.arg("dim"), rank) == rank - 1
        if not isinstance(user, aten.ViewDefault) or not splits_leading(user):
            return False
        value = user.results[0]
    return False


RULES = lowerings_of(__name__)
