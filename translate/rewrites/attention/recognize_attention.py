"""Raising: recompose decomposed attention as `scaled_dot_product_attention`.

Decomposition splits the scale over q and k (√s each) and guards the softmax: rows that are all −inf
give zeros. On 197×197 scores the guard's seven ops cost more than both products. Each target
expands the recomposed attention in its fastest form, and `expand-attention` drops the guard where
no row can be all −inf.

The pass runs on canonical form (no-op expands and copies removed, permutes and views merged). The
layout ops between a scale factor and its product are applied to the unscaled tensor.

Before:
    %qs = aten.mul.Scalar(%q, 0.5) : (tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
    %ks = aten.mul.Scalar(%k, 0.5) : (tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
    %scores = aten.matmul.default(%qs, %ks) : (tensor<1x2x4x8xf32>, tensor<1x2x8x4xf32>) -> tensor<1x2x4x4xf32>
    %w = aten._softmax.default(%scores, -1, false) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %o = aten.matmul.default(%w, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
After:
    %kt = aten.permute.default(%k, [0, 1, 3, 2]) : (tensor<1x2x8x4xf32>) -> tensor<1x2x4x8xf32>
    %o = aten.scaled_dot_product_attention.default(%q, %kt, %v, scale=0.25) : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.attention.attention_pattern import (
    PRODUCTS,
    Traced,
    constant_factor,
    scores_are_finite,
    trace_scale,
)
from stepwell.translate.rewrites.attention.row_guards import guarded_softmax
from stepwell.translate.rewrites.building import permute_op, view_op
from stepwell.translate.rewrites.sizes.open_rows import unopened_rows


@dataclass(frozen=True)
class Attention:
    """The matched parts: q, kᵀ and v as they enter, before their scale factors."""

    product: SchemaOp
    q: Traced
    k_transposed: Traced
    v: SSAValue
    mask: SSAValue | None
    scale: float
    batch: tuple[Dim, ...]


@dataclass(frozen=True)
class Scores:
    """The softmax's operand: `scale` times `product`, plus `mask`; `batch` has its heads."""

    product: SchemaOp
    mask: SSAValue | None
    scale: float
    batch: tuple[Dim, ...]


@dataclass(frozen=True)
class RecognizeAttention(Rewrite[Attention]):
    """A softmax between two matrix products, guarded or not, to one attention op."""

    name: ClassVar[str] = "recognize-attention"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten._SoftmaxDefault,
        aten.SoftmaxInt,
        aten._SafeSoftmaxDefault,
    )
    bound: ClassVar[Bound] = roundings("one scale factor instead of two; reassociation")

    def match(self, op: SchemaOp, program: Program) -> Attention | Refusal | None:
        """Trace the softmax back to QKᵀ and forward to the product with v."""
        rank = len(dims(op.results[0].type))
        if op.arg("dim") % max(rank, 1) != rank - 1 or op.results[0].type != op.operands[0].type:
            return None
        scores = scores_of(op.operands[0])
        if scores is None or isinstance(scores, Refusal):
            return scores
        out = weighted_sum(op, program)
        if out is None or isinstance(out, Refusal):
            return out
        product, guarded = out
        if scores.mask is not None and not guarded and not isinstance(op, aten._SafeSoftmaxDefault):
            refusal = unopened_rows(scores.mask, program)
            if refusal is not None:
                return Refusal(f"no guard for rows that are all −inf, and {refusal.reason}")
        batch = scores.batch
        entering = (*scores.product.operands, product.operands[1])
        if not all(regroups(dims(value.type)[:-2], batch) for value in entering):
            return Refusal("q, k and v broadcast against each other")
        q, k = trace_scale(scores.product.operands[0]), trace_scale(scores.product.operands[1])
        return Attention(
            product, q, k, entering[2], scores.mask, q.scale * k.scale * scores.scale, batch
        )

    def deviates(self, match: Attention, program: Program) -> Deviation | None:
        """One factor replaces two: scores overflow at other values, if at all."""
        pairs = (match.product.operands[:2], (match.q.value, match.k_transposed.value))
        return REORDERED.unless(*(scores_are_finite(q, k, match.scale, program) for q, k in pairs))

    def build(self, match: Attention, rw: Rewriter) -> None:
        """Apply the layouts without scale, with the batch axes that the mask or the softmax had."""
        at = match.product
        q, k_transposed, v = (
            _with_batch(rw, part, match.batch, at)
            for part in (replay(match.q, rw, at), replay(match.k_transposed, rw, at), match.v)
        )
        rank = len(dims(k_transposed.type))
        turned = permute_op(k_transposed, [*range(rank - 2), rank - 1, rank - 2])
        k = rw.insert(turned, at).results[0]
        arguments: list[Any] = [q, k, v]
        if match.mask is not None:
            arguments.append(match.mask)
        shape: list[Dim] = [*dims(q.type)[:-1], dims(v.type)[-1]]
        attention = aten.ScaledDotProductAttentionDefault.make(
            *arguments, scale=match.scale, result_types=[tensor(shape, element(q.type))]
        )
        rw.insert(attention, at)
        result: SSAValue = attention.results[0]
        if result.type != at.results[0].type:
            result = rw.insert(view_op(rw, result, dims(at.results[0].type)), at).results[0]
        rw.replace(at, [result])


def scores_of(value: SSAValue) -> Scores | Refusal | None:
    """Return the QKᵀ product before a softmax's operand, with the mask and scale applied to it."""
    mask: SSAValue | None = None
    scale = 1.0
    batch = dims(value.type)[:-2]
    while isinstance(owner := value.owner, SchemaOp):
        if owner.name in PRODUCTS:
            if len(owner.operands) != 2:
                return Refusal("the product adds a third tensor (baddbmm)")
            return Scores(owner, mask, scale, batch)
        factor = constant_factor(owner)
        if factor is not None:
            scale *= factor
            value = owner.operands[0]
        elif isinstance(owner, aten.AddTensor) and len(owner.operands) == 2:
            if scale != 1.0:
                return Refusal("the mask is scaled with the scores")
            side = [leads_to_product(operand) for operand in owner.operands]
            if side == [False, False]:
                return None
            if side[0] == side[1] or owner.arg("alpha") != 1:
                return Refusal("what is added to the scores is no mask")
            value, mask = owner.operands[side.index(True)], owner.operands[side.index(False)]
            batch = dims(owner.results[0].type)[:-2]
            if not masks(mask, value, owner.results[0]):
                return Refusal(
                    "what is added to the scores changes their dtype, so that it is no mask"
                )
        elif isinstance(owner, aten.ViewDefault) and splits_leading(owner):
            value = owner.operands[0]
        else:
            return None
    return None


def masks(term: SSAValue, scores: SSAValue, total: SSAValue) -> bool:
    """Whether a term has the scores' dtype and keeps their shape."""
    term_type = term.type
    return (
        isinstance(term_type, TensorType)
        and term_type.element_type == element(scores.type)
        and total.type == scores.type
    )


def leads_to_product(value: SSAValue) -> bool:
    """Whether a value is a matrix product under views and constant factors."""
    while isinstance(owner := value.owner, SchemaOp):
        if owner.name in PRODUCTS:
            return True
        if constant_factor(owner) is None and not isinstance(owner, aten.ViewDefault):
            return False
        value = owner.operands[0]
    return False


def splits_leading(view: SchemaOp) -> bool:
    """Whether a view only splits or merges batch dimensions, and keeps the last two."""
    before, after = dims(view.operands[0].type), dims(view.results[0].type)
    return len(before) >= 2 and before[-2:] == after[-2:]


def weighted_sum(
    softmax: SchemaOp, program: Program
) -> tuple[SchemaOp, bool] | Refusal | None:
    """Return the product of the attention weights with v, and whether a guard precedes it."""
    weights: SSAValue = softmax.results[0]
    guarded = False
    select = guard_of(softmax, program)
    if select is not None:
        weights, guarded = select.results[0], True
    while True:
        users = [use for use in weights.uses if not (guarded and use.operation is softmax)]
        if len(users) != 1:
            return Refusal("the attention weights are used elsewhere too")
        user = users[0].operation
        if isinstance(user, SchemaOp) and user.name in PRODUCTS:
            if users[0].index != 0 or len(user.operands) != 2:
                return None
            return user, guarded
        if not isinstance(user, aten.ViewDefault) or not splits_leading(user):
            return None
        weights = user.results[0]


def guard_of(softmax: SchemaOp, program: Program) -> SchemaOp | None:
    """Return `where(not any(not (scores == −inf)), 0, softmax)` around a softmax, or None."""
    for use in softmax.results[0].uses:
        select = use.operation
        if isinstance(select, aten.WhereSelf) and use.index == 2:
            zeros = select.operands[1]
            if guarded_softmax(select, program) is not None:
                others = [u.operation for u in softmax.results[0].uses if u.operation is not select]
                if all(o is zeros.owner for o in others):
                    return select
    return None


def replay(traced: Traced, rw: Rewriter, before: Operation) -> SSAValue:
    """Apply the layout ops of a traced tensor to its unscaled source."""
    value = traced.value
    for op in traced.chain:
        copied = op.clone()
        copied.operands[0] = value
        value = rw.insert(copied, before).results[0]
    return value


def regroups(held: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    """Whether a view can turn these batch axes into the required ones."""
    if held == wanted:
        return UNKNOWN not in held
    sizes, goal = ([d for d in axes if isinstance(d, int)] for axes in (held, wanted))
    known = len(sizes) == len(held) and len(goal) == len(wanted)
    return known and prod(sizes) == prod(goal)


def _with_batch(
    rw: Rewriter, value: SSAValue, batch: tuple[Dim, ...], before: Operation
) -> SSAValue:
    shape = [*batch, *dims(value.type)[-2:]]
    if tuple(shape) == dims(value.type):
        return value
    return rw.insert(view_op(rw, value, shape), before).results[0]
