"""Raising: recompose decomposed attention as `scaled_dot_product_attention`.

Decomposition splits the scale over q and k (√s each) and guards the weights: rows of scores that
are all −inf give zeros. On 197×197 scores the guard's seven ops cost more than both products. Each target
expands the recomposed attention in its fastest form, and `expand-attention` drops the guard where
no row can be all −inf.

The pass runs on canonical form (no-op expands and copies removed, permutes and views merged). The
layout ops between a scale factor and its product are applied to the unscaled tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.attention.attention_pattern import (
    PRODUCTS,
    SCORES,
    WEIGHTS,
    Traced,
    constant_factor,
    scores_are_finite,
    trace_scale,
)
from stepwell.translate.rewrites.attention.row_guards import guarded_rows
from stepwell.translate.rewrites.sizes.open_rows import unopened_rows


@dataclass(frozen=True)
class Attention:
    """The parts of a matched attention: queries and transposed keys before their scale factors, the
    mask, the scale, and the batch axes.
    """

    q: Traced
    k_transposed: Traced
    mask: SSAValue | None
    scale: float
    batch: tuple[Dim, ...]


@dataclass(frozen=True)
class Scores:
    """The scores of an attention: `scale` times `product`, plus `mask`; `batch` are the batch axes
    and heads.
    """

    product: SchemaOp
    mask: SSAValue | None
    scale: float
    batch: tuple[Dim, ...]


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of scores that may overflow, as one factor is applied instead of two."""
    found = attention_of(op, program)
    assert found is not None, "it is a match"
    pairs = (op.operands[:2], (found.q.value, found.k_transposed.value))
    return REORDERED.unless(*(scores_are_finite(q, k, found.scale, program) for q, k in pairs))


@lowers(
    "aten.matmul.default",
    "aten.bmm.default",
    "aten.mm.default",
    to="aten",
    bound=roundings("one scale factor instead of two; reassociation"),
    deviation=_loses,
    sample=f"""
    %a = aten.mul.Scalar(%x, 0.5) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %b = aten.mul.Scalar(%y, 0.5) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
    {SCORES}
    {WEIGHTS}
    %o = aten.bmm.default(%w, %v) : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    """,
)
def recognize_attention(_: Value, v: Value, *, op: SchemaOp, out: Out, b: Rewriter) -> Value | None:
    """Rewrite the product of attention weights and values as one attention op, with the guard or
    without.

    Layout ops between q, k, v and the products are applied to the unscaled tensors before the op.
    Batch axes are those of the mask or of the weights.
    """
    found = attention_of(op, b.program)
    if found is None:
        return None
    parts = (replay(found.q, b), replay(found.k_transposed, b), v)
    q, k_transposed, v = (part.view(*found.batch, *part.shape[-2:]) for part in parts)
    rank = k_transposed.rank
    k = k_transposed.permute([*range(rank - 2), rank - 1, rank - 2])
    attention = q.call(
        aten.ScaledDotProductAttentionDefault,
        *(k, v, *([] if found.mask is None else [found.mask])),
        scale=found.scale,
        shape=(*q.shape[:-1], v.shape[-1]),
    )
    return attention.view(*out.shape)


def attention_of(op: SchemaOp, program: Program) -> Attention | None:
    """Return the attention whose last product is `op`: traced back to the weights, then to QKᵀ."""
    weights, v = op.operands
    found = probabilities_of(weights, program)
    if found is None:
        return None
    normalized, is_guarded, values = found
    scores = scores_of(normalized.operands[0])
    if scores is None:
        return None
    if not all(value.has_one_use() for value in values):
        refuse("the attention weights have other uses")
    if scores.mask is not None and not is_guarded:
        refusal = unopened_rows(scores.mask, program)
        if refusal is not None:
            refuse(f"no guard for rows that are all −inf, and {refusal.reason}")
    queries, keys = scores.product.operands
    if not all(regroups(dims(value.type)[:-2], scores.batch) for value in (queries, keys, v)):
        refuse("q, k and v broadcast against each other")
    q, k = trace_scale(queries), trace_scale(keys)
    return Attention(q, k, scores.mask, q.scale * k.scale * scores.scale, scores.batch)


def probabilities_of(
    weights: SSAValue, program: Program
) -> tuple[SchemaOp, bool, tuple[SSAValue, ...]] | None:
    """Return the op that normalizes rows of scores to attention weights, and whether it is guarded.

    A guard gives zeros for rows of scores that are all −∞. Also return the values from the weights
    to the op; those that the guard itself reads are not among them.
    """
    values = [weights]
    while isinstance(owner := values[-1].owner, aten.ViewDefault) and splits_leading(owner):
        values.append(owner.operands[0])
    is_guarded = False
    if isinstance(owner, aten.WhereSelf):
        guard = guarded_rows(owner, program)
        if guard is None or (held := guard.probabilities) is None:
            return None
        others = {use.operation for use in held.uses} - {owner, owner.operands[1].owner}
        values += [held] * bool(others)
        owner, is_guarded = held.owner, True
    if not isinstance(owner, SchemaOp) or not is_of(owner, "probabilities"):
        return None
    result, rank = owner.results[0], len(dims(owner.results[0].type))
    if owner.arg("dim") % max(rank, 1) != rank - 1 or result.type != owner.operands[0].type:
        return None
    return owner, is_guarded or not is_of(owner, "distribution"), tuple(values)


def scores_of(value: SSAValue) -> Scores | None:
    """Return the QKᵀ product of scores, with the mask and scale applied to it."""
    mask: SSAValue | None = None
    scale = 1.0
    batch = dims(value.type)[:-2]
    while isinstance(owner := value.owner, SchemaOp):
        if owner.name in PRODUCTS:
            if len(owner.operands) != 2:
                refuse("the product adds a third tensor (baddbmm)")
            return Scores(owner, mask, scale, batch)
        factor = constant_factor(owner)
        if factor is not None:
            scale *= factor
            value = owner.operands[0]
        elif isinstance(owner, aten.AddTensor) and len(owner.operands) == 2:
            if scale != 1.0:
                refuse("the mask is scaled with the scores")
            side = [leads_to_product(operand) for operand in owner.operands]
            if side == [False, False]:
                return None
            if side[0] == side[1] or owner.arg("alpha") != 1:
                refuse("the tensor that is added to the scores is no mask")
            value, mask = owner.operands[side.index(True)], owner.operands[side.index(False)]
            batch = dims(owner.results[0].type)[:-2]
            if not masks(mask, value, owner.results[0]):
                refuse("the tensor that is added to the scores changes their dtype: it is no mask")
        elif isinstance(owner, aten.ViewDefault) and splits_leading(owner):
            value = owner.operands[0]
        else:
            return None
    return None


def masks(term: SSAValue, scores: SSAValue, total: SSAValue) -> bool:
    """Whether a term that is added to attention scores can be their mask: it has their dtype, and
    the sum has their shape.
    """
    term_type = term.type
    return (
        isinstance(term_type, TensorType)
        and term_type.element_type == element(scores.type)
        and total.type == scores.type
    )


def leads_to_product(value: SSAValue) -> bool:
    """Whether a value is a matrix product, possibly followed by views and multiplications by
    constants.
    """
    while isinstance(owner := value.owner, SchemaOp):
        if owner.name in PRODUCTS:
            return True
        if constant_factor(owner) is None and not isinstance(owner, aten.ViewDefault):
            return False
        value = owner.operands[0]
    return False


def splits_leading(view: SchemaOp) -> bool:
    """Whether a view only splits or merges batch axes, and does not change the last two axes."""
    before, after = dims(view.operands[0].type), dims(view.results[0].type)
    return len(before) >= 2 and before[-2:] == after[-2:]


def replay(traced: Traced, b: Rewriter) -> Value:
    """Copy the layout ops between a query or key and the attention, and apply them to the tensor
    before its scale.
    """
    value = traced.value
    for op in traced.chain:
        copied = op.clone()
        copied.operands[0] = value
        value = b.insert(copied).results[0]
    return Value(value, b)


def regroups(held: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    """Whether a view can turn these batch axes into the required ones."""
    if held == wanted:
        return UNKNOWN not in held
    sizes, goal = ([d for d in axes if isinstance(d, int)] for axes in (held, wanted))
    known = len(sizes) == len(held) and len(goal) == len(wanted)
    return known and prod(sizes) == prod(goal)


RULES = lowerings_of(__name__)
