"""Remove the guard of attention's softmax against rows that are all −∞.

`scaled_dot_product_attention` decomposes to a softmax with a guard that gives zeros, not NaNs, for
a query that may attend to no key:

    where(¬any(¬(scores = −∞)), 0, softmax(scores))

Over [heads, tokens, tokens] it costs more than everything else together: without it DeiT-Tiny runs
1.7 times as fast. It may be removed where no row can be all −∞: if the scores are not masked, or if
a constant mask provably leaves every row an element. (Scores themselves are finite for finite
activations; a product that overflows to −∞ in a whole row gives NaN after this rewrite and 0
before.)

rule remove-safe-softmax-guard
    `where(row is all −∞, 0, softmax(scores))` to `softmax(scores)`.
Before:
    %p = $softmax of SOFTMAXES(%s, …, dim=$dim)
    %y = aten.where.self(%c, %z, %p)
After:
    %y = itself(%p)
where is_zero(%z) for choice
where are_of_one_type(%p, %y)
where is_of_full_rows(%c, %s, from_front(%s, $dim))
unless may_be_empty(%s, from_front(%s, $dim))
loses OVERFLOWN
for %s = aten.bmm.default(%q, %k)
for %e = aten.eq.Scalar(%s, -inf)
for %f = aten.logical_not.default(%e)
for %g = aten.any.dim(%f, -1, true)
for %c = aten.logical_not.default(%g)
for %z = aten.full_like.default(%s, 0)
for $softmax = "aten._softmax.default", $dim = 2, $half_to_float = false
for %q = "tensor<2x3x4xf32>", %k = "tensor<2x4x3xf32>"
not for %z = aten.full_like.default(%s, 1)
not for %z = aten.full.default([5, 2, 3, 3], 0)
not for %c = "tensor<2x3x1xi1>"
not for %h = aten.bmm.default(%q, %k); %s = aten.masked_fill.Scalar(%h, %i, -inf);
    %i = "tensor<2x3x1xi1>"

rule safe-softmax-to-softmax
    `_safe_softmax(scores)` to `softmax(scores)`.
Before:
    %y = aten._safe_softmax.default(%s, $dim, …) : ($T, …) -> $T
After:
    %y = aten._softmax.default(%s, from_front(%s, $dim), false)
unless may_be_empty(%s, from_front(%s, $dim))
loses OVERFLOWN
for %s = aten.bmm.default(%q, %k)
for $dim = 2, $T = "tensor<2x3x3xf32>", %q = "tensor<2x3x4xf32>", %k = "tensor<2x4x3xf32>"
not for %h = aten.bmm.default(%q, %k); %s = aten.masked_fill.Scalar(%h, %i, -inf);
    %i = "tensor<2x3x1xi1>"
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of, lays_out
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.translate.rewrites.attention import attention_pattern
from stepwell.translate.rewrites.attention.attention_pattern import PRODUCTS, SCALES
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.slices.select_by_constant_mask import SELECTIONS, selection
from stepwell.translate.rules import read_rules

SOFTMAXES = (aten._SoftmaxDefault, aten.SoftmaxInt)
ZEROS = ("aten.zeros_like.default", "aten.zeros.default", "aten.new_zeros.default")
FULLS = (
    "aten.full_like.default",
    "aten.full.default",
    "aten.new_full.default",
    "aten.scalar_tensor.default",
)


@dataclass(frozen=True)
class Guarded:
    """`op` gives `softmax(scores)`, or zeros where a row of the scores is all −∞."""

    op: SchemaOp
    probabilities: SSAValue | None
    scores: SSAValue
    at: int


def guarded_rows(op: SchemaOp, program: Program) -> Guarded | None:
    """Match a softmax with a guard for rows that are all −∞; `op` is the guard's last op."""
    if isinstance(op, aten._SafeSoftmaxDefault):
        scores = op.operands[0]
        if scores.type != op.results[0].type:
            return None
        return Guarded(op, None, scores, axis(op.arg("dim"), len(dims(scores.type))))
    condition, zeros, probabilities = op.operands
    softmax = probabilities.owner
    if not isinstance(softmax, SOFTMAXES) or not is_zero(zeros, program):
        return None
    if probabilities.type != op.results[0].type:
        return None
    scores = softmax.operands[0]
    at = axis(softmax.arg("dim"), len(dims(scores.type)))
    if rows_with_a_finite_element(condition, at) != scores:
        return None
    return Guarded(op, probabilities, scores, at)


def is_of_full_rows(condition: SSAValue, scores: SSAValue, at: int) -> bool:
    """Whether a boolean value is true exactly for the rows of attention scores that are all −∞."""
    return rows_with_a_finite_element(condition, at) == scores


def rows_with_a_finite_element(condition: SSAValue, at: int) -> SSAValue | None:
    """Return `x` of the condition `logical_not(any(logical_not(x == -inf), at, keepdim=True))`."""
    outer = condition.owner
    if not isinstance(outer, aten.LogicalNotDefault):
        return None
    some = outer.operands[0].owner
    if not isinstance(some, aten.AnyDim | aten.AnyDims) or not some.arg("keepdim"):
        return None
    listed: Any = some.arg("dim")
    over: list[int] = listed if isinstance(listed, list) else [listed]
    inner = some.operands[0].owner
    if listed is None or [axis(d, len(dims(some.operands[0].type))) for d in over] != [at]:
        return None
    if isinstance(inner, aten.NeScalar) and inner.arg("other") == -inf:
        return inner.operands[0]
    if not isinstance(inner, aten.LogicalNotDefault):
        return None
    equal = inner.operands[0].owner
    if isinstance(equal, aten.EqScalar) and equal.arg("other") == -inf:
        return equal.operands[0]
    return None


def is_zero(value: SSAValue, program: Program) -> bool:
    """Whether every element of a value is known to be zero."""
    if (key := weight_key(value)) is not None:
        return not bool(program.weights.get(key).any())
    owner = value.owner
    if not isinstance(owner, SchemaOp):
        return False
    if owner.name in ZEROS:
        return True
    if owner.name in FULLS:
        name = "s" if "s" in owner.SCHEMA.by_name else "fill_value"
        return bool(owner.arg(name) == 0)
    return lays_out(owner) and is_zero(owner.operands[0], program)


def may_be_empty(
    scores: SSAValue, at: int, program: Program, masked: bool = False
) -> Refusal | None:
    """Return why a row of the scores along axis `at` may be all −∞, or None if it cannot.

    The search goes from the scores back to the product, over finite scales and layout ops that keep
    the rows. It accepts one constant mask that leaves an element in each row. Two such masks may
    still hide a row together.
    """
    owner = scores.owner
    if not isinstance(owner, SchemaOp):
        return Refusal("the scores are an input, which may hold a row of −inf")
    if owner.name in PRODUCTS or isinstance(owner, aten.LinearDefault):
        return None
    if owner.name in SCALES:
        scaled = finitely_scaled(owner, program)
        if scaled is None:
            return Refusal("the scores are scaled by a factor that is not a finite constant")
        return may_be_empty(scaled, at, program, masked)
    if is_of(owner, "cast") or isinstance(owner, aten.ExpandDefault | aten.CloneDefault):
        return may_be_empty(owner.operands[0], at, program, masked)
    if isinstance(owner, aten.ViewDefault | aten.ReshapeDefault | aten._UnsafeViewDefault):
        operand = owner.operands[0]
        if dims(operand.type)[-1:] != dims(scores.type)[-1:] or at != len(dims(scores.type)) - 1:
            return Refusal("a view moves the axis of the softmax")
        return may_be_empty(operand, len(dims(operand.type)) - 1, program, masked)
    found = masked_scores(owner, program)
    if isinstance(found, Refusal):
        return found
    if masked:
        return Refusal("two masks hide scores, and together they may hide a row")
    plain, hidden = found
    return blocks_a_row(hidden, scores, at) or may_be_empty(plain, at, program, masked=True)


def finitely_scaled(op: SchemaOp, program: Program) -> SSAValue | None:
    """Return the operand of a product or quotient whose other operand is a finite constant."""
    if "Scalar" in op.name:
        number = op.arg("other")
        return op.operands[0] if isinstance(number, int | float) and isfinite(number) else None
    for plain, factor in (op.operands[:2], reversed(op.operands[:2])):
        if (key := weight_key(factor)) is not None:
            return plain if bool(program.weights.get(key).isfinite().all()) else None
    return None


def masked_scores(op: SchemaOp, program: Program) -> tuple[SSAValue, torch.Tensor] | Refusal:
    """Return the scores that a constant mask is applied to, and where it hides them."""
    if isinstance(op, aten.AddTensor):
        for plain, mask in (op.operands[:2], reversed(op.operands[:2])):
            if (key := weight_key(mask)) is not None:
                return plain, program.weights.get(key) == -inf
        return Refusal("a mask known only at run time is added to the scores")
    if op.name not in SELECTIONS:
        return Refusal(f"the scores come from {op.name}, which may give a row of −inf")
    sides = selection(op)
    key = weight_key(sides.mask)
    if key is None:
        return Refusal("a mask known only at run time hides scores")
    if not isinstance(sides.value, SSAValue) or weight_key(sides.value) is not None:
        sides = sides.turned()
    return sides.value, program.weights.get(key) != sides.kept


def blocks_a_row(hidden: torch.Tensor, scores: SSAValue, at: int) -> Refusal | None:
    """Return why a constant mask leaves some row empty; `hidden` is true where it puts −∞."""
    from_end = at - len(dims(scores.type))
    blocked = hidden if hidden.dim() < -from_end else hidden.all(dim=from_end)
    return Refusal("the mask hides every element of some row") if bool(blocked.any()) else None


RULES = read_rules(__doc__, vars(attention_pattern) | globals())
