"""The arguments of `scaled_dot_product_attention`, for the rewrites that decompose it."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import UNKNOWN, number_of
from stepwell.ir.types import dims, is_static
from stepwell.translate.rewrites.attention.attention_pattern import OVERFLOWN, scores_are_finite
from stepwell.translate.rewrites.sizes.open_rows import unopened_rows

MOST_SCORES = 1 << 28
"""Elements of the largest mask that is made a constant."""


def overflows(op: Any, program: Program) -> Deviation | None:
    """Return the deviation that attention scores may overflow, to −∞ in a whole row; None if that
    is excluded, for example because queries and keys are normalized.
    """
    scale, mask = scale_of(op), op.operand("attn_mask")
    assert not isinstance(scale, Refusal)
    if mask is not None and unopened_rows(mask, program, trusts=False) is not None:
        return OVERFLOWN
    queries, keys = op.operands[:2]
    return OVERFLOWN.unless(scores_are_finite(queries, keys, scale, program))


def drops_out(op: SchemaOp) -> Refusal | None:
    """Refuse an attention with dropout."""
    if op.arg("dropout_p"):
        return Refusal(f"dropout_p is {op.arg('dropout_p')}; export the model in eval mode")
    return None


def scale_of(op: SchemaOp) -> float | Refusal:
    """Return the factor of scores: one over the root of the head size if none is stated."""
    scale = op.arg("scale")
    if scale is None:
        depth = dims(op.operands[0].type)[-1]
        if not isinstance(depth, int):
            return Refusal("the head size is symbolic, so the default scale is unknown")
        scale = 1.0 / math.sqrt(depth)
    if isinstance(scale, SSAValue):
        return Refusal("the scale is known only at run time")
    return float(scale)


def causal_needs_shape(op: SchemaOp, lays_out_triangles: bool) -> Refusal | None:
    """Refuse a causal attention of symbolic sizes, because its mask is a constant, unless the mask
    may be computed at run time.
    """
    q, k = op.operands[0].type, op.operands[1].type
    if op.arg("is_causal") and not (is_static(q) and is_static(k)):
        if lays_out_triangles and UNKNOWN not in (dims(q)[-2], dims(k)[-2]):
            return None
        return Refusal("is_causal is set and a length is symbolic, so that the mask is no constant")
    if op.arg("is_causal") and number_of(dims(q)[-2]) * number_of(dims(k)[-2]) > MOST_SCORES:
        return Refusal(f"is_causal is set and a mask would have more than {MOST_SCORES} elements")
    return None


def query_group(op: SchemaOp) -> int | Refusal:
    """Return how many query heads share a key head; torch requires a whole number."""
    if not op.arg("enable_gqa"):
        return 1
    q, k = dims(op.operands[0].type), dims(op.operands[1].type)
    if not (isinstance(q[-3], int) and isinstance(k[-3], int)):
        return Refusal("enable_gqa is set and the number of heads is symbolic")
    if not isinstance(q[-2], int):
        return Refusal("enable_gqa is set and the number of queries is symbolic")
    return q[-3] // k[-3]
