"""Decompositions of attention into products, a mask and a softmax."""

from __future__ import annotations

from typing import Any

import torch
from xdsl.ir import Attribute

from stepwell.dialects import aten
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import dtype_name, f32, i1, i64, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Dim
from stepwell.ir.types import IntType, dims, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, again, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.attention.arguments import (
    causal_needs_shape,
    drops_out,
    overflows,
    query_group,
    scale_of,
)
from stepwell.translate.rewrites.attention.row_guards import guarded_rows
from stepwell.translate.rewrites.building import emit, size_of
from stepwell.translate.rewrites.sizes.open_rows import picked_rows, unopened_rows

ATTENTION = "aten.scaled_dot_product_attention.default"
ORDERS = roundings("torch may run a fused kernel with another order")
REPEATED = 2**18
"""The largest mask, in elements (1 MiB in float32), whose rows are repeated for the heads that
share keys. For a larger mask, views give the scores an axis for the heads of a group.
"""


@recipe("additive_mask")
def additive_mask(mask: torch.Tensor, *, dtype: str) -> torch.Tensor:
    """Return zeros where a boolean mask is true, and −inf where it is false."""
    zeros = torch.zeros(mask.shape, dtype=getattr(torch, dtype), device=mask.device)
    return zeros.masked_fill(~mask, float("-inf"))


@recipe("repeated_rows")
def repeated_rows(mask: torch.Tensor, *, times: int) -> torch.Tensor:
    """Repeat all rows of a matrix, one copy after the other."""
    return mask.repeat(*(1,) * (mask.dim() - 2), times, 1)


@lowers(
    ATTENTION,
    to="aten",
    phases={"xnnpack/attention": {}, "tosa/attention": {"lays_out_triangles": True}},
    takes_empty=False,
    bound=ORDERS,
    deviation=overflows,
    sample=(*["1x2x4x8xf32"] * 3, {"scale": 0.25}),
)
def expand_attention(
    q: Value, k: Value, v: Value, *, op: Any, out: Out, lays_out_triangles: bool = False
) -> Value:
    """Decompose attention into products, a mask and a softmax, without a guard for masked-out rows.

    The scale is applied to q, the smaller operand. Grouped-query attention needs no repeated keys:
    the query heads of a group are rows of one product, since `[B, Hk·G, N, D]` and `[B, Hk, G·N,
    D]` have the same elements in the same order. A constant causal or boolean mask becomes a
    constant of zeros and −inf. For targets with `lays_out_triangles`, a causal mask of symbolic
    length is computed as a triangle of a `full`. The softmax is plain: a row that may be all −inf
    is refused.
    """
    no_refusal(drops_out(op) or causal_needs_shape(op, lays_out_triangles))
    mask = op.operand("attn_mask")
    if mask is not None:
        no_refusal(unopened_rows(mask, q.b.program))
    if len({value.shape[:-3] for value in (q, k, v)}) > 1:
        refuse("queries, keys and values have different leading axes")
    if len({value.shape[:-2] for value in (q, k, v)}) > 1 and not op.arg("enable_gqa"):
        refuse("queries, keys and values have different numbers of heads")
    if k.shape[:-1] != v.shape[:-1]:
        refuse("keys and values differ in their number or in the number of heads")
    group, scale = no_refusal(query_group(op)), no_refusal(scale_of(op))
    q = q * scale if scale != 1.0 else q
    whole = q.shape
    if group > 1:
        *lead, heads, rows, depth = whole
        q = q.view(*lead, heads // group, group * rows, depth)
    scores = product(q, turned(k))
    grouped = scores.shape
    per_head = (*whole[:-1], grouped[-1])
    added = _mask(op, q, per_head)
    if added is not None:
        if group > 1 and repeatable(added, per_head, group):
            added = added.derived("repeated_rows", times=group)
        else:
            scores = scores.view(*per_head)
        scores = scores.call(aten.AddTensor, added)
    return product(softmax(scores).view(*grouped), v).view(*out.shape)


def turned(k: Value) -> Value:
    """Transpose the last two axes of a tensor."""
    return k.permute([*range(k.rank - 2), k.rank - 1, k.rank - 2])


def product(left: Value, right: Value) -> Value:
    """Return `left @ right`; the batch axes of `right` broadcast to those of `left`."""
    return left.call(aten.MatmulDefault, right, shape=(*left.shape[:-1], right.shape[-1]))


def softmax(scores: Value) -> Value:
    """Return the softmax of each row."""
    return scores.call(aten._SoftmaxDefault, scores.rank - 1, False)


def _mask(op: Any, q: Value, scores: tuple[Dim, ...]) -> Value | None:
    """Return the mask that is added to the scores, or None: a causal or boolean mask as zeros and
    −inf, a mask of numbers unchanged.
    """
    dtype = dtype_name(q.dtype)
    if op.arg("is_causal"):
        rows, columns = scores[-2:]
        if not isinstance(rows, int) or not isinstance(columns, int):
            return _triangle(op, q)
        below = torch.ones(rows, columns, dtype=torch.bool).tril()
        return q.constant(additive_mask(below, dtype=dtype), "causal")
    mask = op.operand("attn_mask")
    if mask is None or Value(mask, q.b).dtype != i1:
        return None if mask is None else Value(mask, q.b)
    picking, source = picked_rows(mask)
    value = Value(source, q.b).derived("additive_mask", dtype=dtype)
    for pick in reversed(picking):
        rest = [Value(operand, q.b) for operand in pick.operands[1:]]
        (value,) = again(pick, [value, *rest], q.dtype)
    return value


def _triangle(op: Any, q: Value) -> Value:
    """Return a `[queries, keys]` mask of −inf above the diagonal and 0 elsewhere; one size is
    dynamic.
    """
    sides = [Value(value, q.b) for value in op.operands[:2]]
    shape = [side.shape[-2] for side in sides]
    sizes = [
        size if isinstance(size, int) else size_of(q.b, side.ssa, side.rank - 2)
        for side, size in zip(sides, shape, strict=True)
    ]
    types = [tensor(shape, q.dtype)]
    full = aten.FullDefault.make(sizes, float("-inf"), dtype=q.dtype, result_types=types)
    return Value(emit(q.b, full), q.b).call(aten.TriuDefault, 1)


def repeatable(mask: Value, scores: tuple[Dim, ...], group: int) -> bool:
    """Whether a mask is a weight, identical for all heads, and small enough to be repeated."""
    *heads, rows, columns = mask.shape
    if any(size != 1 for size in heads) or rows != scores[-2] or mask.key is None:
        return False
    return isinstance(rows, int) and isinstance(columns, int) and rows * columns * group <= REPEATED


def _has_known_lengths(op: Any) -> bool:
    return all(isinstance(dims(value.type)[-2], int) for value in op.operands[:2])


@lowers(
    ATTENTION,
    to="aten",
    phases=("xnnpack/attention",),
    bound=ORDERS,
    deviation=overflows,
    unless=_has_known_lengths,
    sample="""
    %o = aten.scaled_dot_product_attention.default(%q, %q, %q, %m, scale=0.25) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x1x1x?xi1, #stepwell.shape<[1, 1, 1, "s"]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>
    """,
)
def expand_attention_of_any_length(q: Value, k: Value, v: Value, *, op: Any, out: Out) -> Value:
    """Decompose attention over a symbolic number of tokens into products, a mask and a softmax.

    XNNPACK's nodes accept symbolic sizes, but a reshape infers only one, not two. Therefore scores
    `[…, n, n]` are never reshaped here. Query heads that share keys get a separate axis, along
    which the product broadcasts.

    The mask is computed with integers, outside the delegate and once for all layers. A causal mask
    is computed from positions; a boolean mask becomes zeros and −inf where it is defined. A row
    that is masked out entirely gives zeros (PyTorch's `_safe_softmax`). Unless such a row is proved
    impossible, the mask adds half of the lowest finite number instead of −inf, so that the softmax
    stays finite, and the result is multiplied by 0 for a masked-out row, by 1 for others.
    """
    no_refusal(drops_out(op))
    scale = no_refusal(scale_of(op))
    if q.rank < 3 or q.rank != k.rank or UNKNOWN in (*q.shape, *k.shape):
        refuse("queries and keys are not stacks of heads of the same rank")
    group, lead, heads = 1, q.shape[:-3], k.shape[-3]
    if op.arg("enable_gqa"):
        if not (isinstance(q.shape[-3], int) and isinstance(heads, int)):
            refuse("enable_gqa is set and the number of heads is symbolic")
        group = q.shape[-3] // heads
    if group > 1:
        if not all(isinstance(size, int) for size in lead):
            refuse("enable_gqa is set, and both the batch and the length are symbolic")
        lead = () if all(size == 1 for size in lead) else lead
    added, opened = _added_and_opened(op, q, k, (lead, heads, group))
    q = q * scale if scale != 1.0 else q
    if group > 1:
        q = q.view(*lead, heads, group, *q.shape[-2:])
        k, v = (x.view(*lead, heads, 1, *x.shape[-2:]) for x in (k, v))
    scores = product(q, turned(k))
    if added is not None:
        scores = scores.call(aten.AddTensor, added)
    value = product(softmax(scores), v)
    if opened is not None:
        value = value.call(aten.MulTensor, opened)
    return value.view(*out.shape)


Axes = tuple[tuple[Dim, ...], Dim, int]
"""The batch axes, the number of key heads, and how many query heads share one of them."""


def _added_and_opened(op: Any, q: Value, k: Value, axes: Axes) -> tuple[Value | None, Value | None]:
    """Return the additive mask, and a factor for each row: 0 if the row is masked out, else 1."""
    held = q.dtype
    if op.arg("is_causal"):
        return _added(_causal(q, k), held, is_open=True), None
    mask = op.operand("attn_mask")
    if mask is None:
        return None, None
    is_open = unopened_rows(mask, q.b.program) is None
    lets = numbers = _aligned(Value(mask, q.b), axes)
    if is_open:
        return (_added(numbers, held, is_open=True) if numbers.dtype == i1 else numbers), None
    if numbers.dtype != i1:
        lets = numbers.call(aten.NeScalar, float("-inf"), dtype=i1)
    some = lets.call(aten.AnyDim, -1, True, shape=(*lets.shape[:-1], 1))
    return _added(numbers, held, is_open=False), some.cast(held)


def _aligned(mask: Value, axes: Axes) -> Value:
    """Return a mask that broadcasts to the scores, whose heads are two axes (shared, group) if
    query heads share keys.
    """
    before, shared, group = axes
    if group == 1 or mask.rank < 3:
        return mask
    *lead, heads = mask.shape[:-2]
    lead = lead if before else []
    if heads != 1:
        return mask.view(*lead, shared, group, *mask.shape[-2:])
    if not lead:
        return mask
    shape = (*lead, 1, 1, *mask.shape[-2:])
    return mask.call(aten.UnsqueezeDefault, len(lead), shape=shape)


def _causal(q: Value, k: Value) -> Value:
    """Return a boolean `[queries, keys]`: whether key j is at or before query i."""
    rows, columns = _positions(q), _positions(k)
    shape = (*rows.shape, *columns.shape)
    column = rows.call(aten.UnsqueezeDefault, 1, shape=(*rows.shape, 1))
    return columns.call(aten.LeTensor, column, shape=shape, dtype=i1)


def _positions(counted: Value) -> Value:
    """Return 0, 1, … for the rows of a tensor `[…, rows, depth]`."""
    b, size = counted.b, counted.shape[-2]
    if isinstance(size, int):
        return counted.constant(torch.arange(size), "positions")
    asked = aten.SymSizeInt.make(counted.ssa, counted.rank - 2, result_types=[IntType(str(size))])
    op = aten.ArangeDefault.make(emit(b, asked), result_types=[tensor([size], i64)])
    return Value(emit(b, op), b)


def _number(value: float, attribute: Attribute, b: Rewriter) -> Value:
    return Value(b.weight(b.weights.number(value, torch_dtype(attribute), 0)), b)


def _added(mask: Value, attribute: Attribute, *, is_open: bool) -> Value:
    """Return the mask to add to the scores: for a boolean mask, 0 where true, and else −inf or, if
    a row may be masked out entirely, half of the lowest finite number.

    An additive mask is kept, but its numbers are at least that lowest one.
    """
    least = float("-inf") if is_open else torch.finfo(torch_dtype(attribute)).min / 2
    closed = _number(least, attribute, mask.b)
    if mask.dtype != i1:
        return mask.call(aten.MaximumDefault, closed)
    return mask.call(aten.WhereSelf, _number(0.0, attribute, mask.b), closed, dtype=attribute)


LARGEST = torch.finfo(torch.float32).max


@lowers(
    "aten._safe_softmax.default",
    "aten.where.self",
    to="aten",
    phases=("parts",),
    sample=("2x3x3xf32", 2),
)
def guard_softmax_in_floats(*, op: Any, b: Rewriter) -> Value | None:
    """Express the guard of a softmax against rows that are −∞ throughout without booleans.

    The guard must stay where a mask is known only at run time, and float engines have no
    comparisons. A score s is −∞ exactly if `s/2 + M` is, where M is the largest finite number.
    Clamped to [0, 1], s/2 + M is 0 for −∞ and 1 for other scores. The sum of a row's numbers,
    clamped again, is 0 if the row is −∞ throughout (closed) and else 1 (open). The maximum of a
    closed row with −M replaces its scores before the softmax, and the result is multiplied by 0.
    (For an open row, the maximum is taken with −2M = −∞, which has no effect.) A row with a NaN is
    NaN throughout.
    """
    guarded = guarded_rows(op, b.program)
    if guarded is None:
        return None
    scores = Value(guarded.scores, b)
    if scores.dtype != f32:
        refuse("the constants of the guard are those of float32")
    is_open = (scores * 0.5 + LARGEST).call(aten.ClampDefault, 0.0, 1.0)
    is_open = is_open.reduce(aten.SumDimIntList, [guarded.at]).call(aten.ClampDefault, 0.0, 1.0)
    least = is_open * -LARGEST + -LARGEST
    lifted = least.binary(aten.MaximumDefault, aten.MaximumDefault, scores)
    return lifted.call(aten._SoftmaxDefault, guarded.at, False) * is_open


RULES = lowerings_of(__name__)
