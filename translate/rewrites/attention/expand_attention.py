"""Write attention as the products, mask and softmax that targets run, without a guard.

The scale goes on q, the smaller operand. Grouped-query attention needs no repeated keys: the
query heads of a group are rows of one product, since `[B, Hk·G, N, D]` and `[B, Hk, G·N, D]` are
the same elements in the same order. A causal or boolean constant mask becomes a constant of
zeros and −inf. The softmax is plain: this rewrite refuses where a row may be all −inf.

Before:
    %o = aten.scaled_dot_product_attention.default(%q, %k, %v, scale=0.25) : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
After:
    %qs = aten.mul.Scalar(%q, 0.25) : (tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
    %kt = aten.permute.default(%k, [0, 1, 3, 2]) : (tensor<1x2x4x8xf32>) -> tensor<1x2x8x4xf32>
    %scores = aten.matmul.default(%qs, %kt) : (tensor<1x2x4x8xf32>, tensor<1x2x8x4xf32>) -> tensor<1x2x4x4xf32>
    %w = aten._softmax.default(%scores, 3, false) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %o = aten.matmul.default(%w, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, i1
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN, number_of
from stepwell.ir.types import Dim, dims, element, is_static, tensor, with_element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.attention.attention_pattern import scores_are_finite
from stepwell.translate.rewrites.building import emit, matmul, permute, put, size_of, view
from stepwell.translate.rewrites.sizes.open_rows import picked_rows, unopened_rows

REPEATED = 2**18
"""Elements of a mask (1 MiB in float32) up to which its rows are repeated for the heads that share
keys; for a longer one the scores are seen head by head, through views."""


@recipe("additive_mask")
def additive_mask(mask: torch.Tensor, *, dtype: str) -> torch.Tensor:
    """Zeros where a boolean mask is true, −inf where it is false."""
    zeros = torch.zeros(mask.shape, dtype=getattr(torch, dtype), device=mask.device)
    return zeros.masked_fill(~mask, float("-inf"))


@recipe("repeated_rows")
def repeated_rows(mask: torch.Tensor, *, times: int) -> torch.Tensor:
    """All rows of a matrix again and again, behind each other."""
    return mask.repeat(*(1,) * (mask.dim() - 2), times, 1)


MOST_SCORES = 1 << 28
"""Elements of the largest mask that is made a constant."""


OVERFLOWN = Deviation("NaN, not zeros, where all scores of a row overflow to −∞", accepted=True)


@dataclass(frozen=True)
class WholeAttention:
    """An attention op with its mask's key if constant and boolean, and its scale."""

    op: SchemaOp
    scale: float
    group: int


@dataclass(frozen=True)
class ExpandAttention(Rewrite[WholeAttention]):
    """`scaled_dot_product_attention` to matmul, mask, softmax, matmul.

    Attributes:
        lays_out_triangles: a causal mask of symbolic length is the triangle of a `full`, for targets
            that compute it.
    """

    lays_out_triangles: bool = False
    name: ClassVar[str] = "expand-attention"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ScaledDotProductAttentionDefault,)
    bound: ClassVar[Bound] = roundings("torch may run a fused kernel with another order")

    def match(self, op: SchemaOp, program: Program) -> WholeAttention | Refusal | None:
        """Guards: no dropout, whole query groups, a mask without closed rows."""
        refusal = drops_out(op) or causal_needs_shape(op, self.lays_out_triangles)
        if refusal is not None:
            return refusal
        mask = op.operand("attn_mask")
        if mask is not None:
            refusal = unopened_rows(mask, program)
            if refusal is not None:
                return refusal
        if len({dims(value.type)[:-3] for value in op.operands[:3]}) > 1:
            return Refusal("queries, keys and values have different leading axes")
        heads = {dims(value.type)[:-2] for value in op.operands[:3]}
        if len(heads) > 1 and not op.arg("enable_gqa"):
            return Refusal("queries, keys and values have different numbers of heads")
        if dims(op.operands[1].type)[:-1] != dims(op.operands[2].type)[:-1]:
            return Refusal("there are more keys than values, or heads of them")
        group = query_group(op)
        if isinstance(group, Refusal):
            return group
        scale = scale_of(op)
        return scale if isinstance(scale, Refusal) else WholeAttention(op, scale, group)

    def deviates(self, match: WholeAttention, program: Program) -> Deviation | None:
        """Products of finite numbers may overflow, to −∞ in a whole row; behind norms none does."""
        q, k = match.op.operands[:2]
        return None if scores_are_finite(q, k, match.scale, program) else OVERFLOWN

    def build(self, match: WholeAttention, rw: Rewriter) -> None:
        """q·s, QKᵀ, mask, softmax, PV; views around them where query heads share keys."""
        op = match.op
        q, k, v = op.operands[:3]
        rank = len(dims(k.type))
        if match.scale != 1.0:
            q = put(rw, aten.MulScalar, q, match.scale)
        heads = list(dims(q.type))
        if match.group > 1:
            q = view(rw, q, _grouped(heads, match.group))
        kt = permute(rw, k, [*range(rank - 2), rank - 1, rank - 2])
        scores = matmul(rw, q, kt)
        grouped = list(dims(scores.type))
        per_head: list[Dim] = [*heads[:-1], grouped[-1]]
        mask = self._mask(op, per_head, rw)
        if mask is not None:
            if match.group > 1 and (key := repeatable(mask, per_head, match.group)) is not None:
                mask = rw.weight(rw.weights.derive("repeated_rows", [key], times=match.group))
            else:
                scores = view(rw, scores, per_head)
            scores = put(rw, aten.AddTensor, scores, mask)
        last = len(dims(scores.type)) - 1
        softmax = aten._SoftmaxDefault.make(scores, last, False, result_types=[scores.type])
        weights = view(rw, emit(rw, softmax), grouped)
        result = matmul(rw, weights, v)
        rw.replace(op, [view(rw, result, dims(op.results[0].type))])

    def _mask(self, op: SchemaOp, scores: list[Dim], rw: Rewriter) -> SSAValue | None:
        held = element(op.operands[0].type)
        dtype = dtype_name(held)
        if op.arg("is_causal"):
            rows, columns = scores[-2:]
            if not isinstance(rows, int) or not isinstance(columns, int):
                return _triangle(op, rw)
            below = torch.ones(rows, columns, dtype=torch.bool).tril()
            return rw.constant(additive_mask(below, dtype=dtype), "causal")
        mask = op.operand("attn_mask")
        if mask is None or element(mask.type) != i1:
            return mask
        picking, source = picked_rows(mask)
        key = weight_key(source)
        assert key is not None, "unopened_rows found a constant behind the mask"
        value = rw.weight(rw.weights.derive("additive_mask", [key], dtype=dtype))
        for pick in reversed(picking):
            again = pick.clone()
            again.operands[0] = value
            value = rw.insert(retyped(again, held)).results[0]
        return value


def _triangle(op: SchemaOp, rw: Rewriter) -> SSAValue:
    """−inf above the diagonal and zeros elsewhere: `[queries, keys]`, of which the run knows one."""
    sizes: list[int | SSAValue] = []
    shape = [dims(value.type)[-2] for value in op.operands[:2]]
    for value, size in zip(op.operands[:2], shape, strict=True):
        rank = len(dims(value.type))
        sizes.append(size if isinstance(size, int) else size_of(rw, value, rank - 2))
    held = element(op.operands[0].type)
    result = tensor(shape, held)
    full = aten.FullDefault.make(sizes, float("-inf"), dtype=held, result_types=[result])
    return emit(rw, aten.TriuDefault.make(emit(rw, full), 1, result_types=[result]))


def repeatable(mask: SSAValue, scores: list[Dim], group: int) -> str | None:
    """The key of a mask that is the same for all heads, and small enough to be repeated for each."""
    *heads, rows, columns = dims(mask.type)
    matrix = [size for size in (rows, columns) if isinstance(size, int)]
    if any(size != 1 for size in heads) or rows != scores[-2]:
        return None
    is_small = len(matrix) == 2 and prod(matrix) * group <= REPEATED
    return weight_key(mask) if is_small else None


def retyped(op: SchemaOp, held: Attribute) -> SchemaOp:
    """The op with another element type in its result."""
    new = remade(op, op.operands, [with_element(result.type, held) for result in op.results])
    op.erase()
    return new


def drops_out(op: SchemaOp) -> Refusal | None:
    """Attention drops no weights."""
    if op.arg("dropout_p"):
        return Refusal(f"dropout_p is {op.arg('dropout_p')}; export the model in eval mode")
    return None


def scale_of(op: SchemaOp) -> float | Refusal:
    """What scores are multiplied by: one over the root of the head size where nothing is said."""
    scale = op.arg("scale")
    if scale is None:
        depth = dims(op.operands[0].type)[-1]
        if not isinstance(depth, int):
            return Refusal("the head size is symbolic, so the default scale is unknown")
        scale = 1.0 / math.sqrt(depth)
    if isinstance(scale, SSAValue):
        return Refusal("the scale is known only at run time")
    return float(scale)


def causal_needs_shape(op: SchemaOp, lays_out_triangles: bool = False) -> Refusal | None:
    """A causal mask is a constant, so its shape must be known, unless it may be computed."""
    q, k = op.operands[0].type, op.operands[1].type
    if op.arg("is_causal") and not (is_static(q) and is_static(k)):
        if lays_out_triangles and UNKNOWN not in (dims(q)[-2], dims(k)[-2]):
            return None
        return Refusal("is_causal is set and a length is symbolic, so that the mask is no constant")
    if op.arg("is_causal") and number_of(dims(q)[-2]) * number_of(dims(k)[-2]) > MOST_SCORES:
        return Refusal(f"is_causal is set and a mask would have more than {MOST_SCORES} elements")
    return None


def query_group(op: SchemaOp) -> int | Refusal:
    """How many query heads share a key head; torch asks for a whole number."""
    if not op.arg("enable_gqa"):
        return 1
    q, k = dims(op.operands[0].type), dims(op.operands[1].type)
    if not (isinstance(q[-3], int) and isinstance(k[-3], int)):
        return Refusal("enable_gqa is set and the number of heads is symbolic")
    if not isinstance(q[-2], int):
        return Refusal("enable_gqa is set and the number of queries is symbolic")
    return q[-3] // k[-3]


def _grouped(heads: list[Dim], group: int) -> list[Dim]:
    head_count, rows = heads[-3], heads[-2]
    assert isinstance(head_count, int) and isinstance(rows, int)
    return [*heads[:-3], head_count // group, group * rows, heads[-1]]
