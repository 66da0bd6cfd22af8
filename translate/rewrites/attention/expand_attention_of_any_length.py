"""Write attention whose number of tokens is symbolic as products, a mask added, and a softmax.

XNNPACK's nodes take a symbolic size as it comes, but work out one of a reshape, not two: scores
`[…, n, n]` are never reshaped here. Query heads that share keys are an axis of their own, along
which the product broadcasts.

What a mask lets through is an integer matter, which stands outside of the delegate and once for
all layers: a causal mask is made of positions, a mask of truth values becomes zeros and −inf where
it is known. A row that lets nothing through gives zeros (PyTorch's `_safe_softmax`). Where no proof
excludes one, the mask closes by half of the least number, so that the softmax stays finite, and the
result is multiplied by whether its row is open.

Before:
    %o = aten.scaled_dot_product_attention.default(%q, %q, %q, %m, scale=0.25) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x1x1x?xi1, #stepwell.shape<[1, 1, 1, "s"]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>
After:
    %0 = aten.where.self(%m, dense<0.0>, dense<-1.70141173e+38>) : (tensor<1x1x1x?xi1, #stepwell.shape<[1, 1, 1, "s"]>>, tensor<f32>, tensor<f32>) -> tensor<1x1x1x?xf32, #stepwell.shape<[1, 1, 1, "s"]>>
    %1 = aten.any.dim(%m, -1, true) : (tensor<1x1x1x?xi1, #stepwell.shape<[1, 1, 1, "s"]>>) -> tensor<1x1x1x1xi1>
    %2 = aten._to_copy.default(%1, dtype=f32) : (tensor<1x1x1x1xi1>) -> tensor<1x1x1x1xf32>
    %3 = aten.mul.Scalar(%q, 0.25) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>
    %4 = aten.permute.default(%q, [0, 1, 3, 2]) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x2x8x?xf32, #stepwell.shape<[1, 2, 8, "s"]>>
    %5 = aten.matmul.default(%3, %4) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x2x8x?xf32, #stepwell.shape<[1, 2, 8, "s"]>>) -> tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>
    %6 = aten.add.Tensor(%5, %0) : (tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>, tensor<1x1x1x?xf32, #stepwell.shape<[1, 1, 1, "s"]>>) -> tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>
    %7 = aten._softmax.default(%6, 3, false) : (tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>) -> tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>
    %8 = aten.matmul.default(%7, %q) : (tensor<1x2x?x?xf32, #stepwell.shape<[1, 2, "s", "s"]>>, tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>
    %o = aten.mul.Tensor(%8, %2) : (tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>, tensor<1x1x1x1xf32>) -> tensor<1x2x?x8xf32, #stepwell.shape<[1, 2, "s", 8]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import i1, i64, torch_dtype
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import UNKNOWN
from stepwell.ir.types import Dim, IntType, dims, element, tensor, with_element
from stepwell.translate.rewrites.attention.attention_pattern import scores_are_finite
from stepwell.translate.rewrites.attention.expand_attention import (
    OVERFLOWN,
    drops_out,
    scale_of,
)
from stepwell.translate.rewrites.building import cast, emit, matmul, permute, put, view
from stepwell.translate.rewrites.sizes.open_rows import unopened_rows


@dataclass(frozen=True)
class LongAttention:
    """An attention with its scale, how it stands in axes, and whether each row lets something in.

    Attributes:
        lead: the axes before the heads, as the products have them.
        heads: of the keys.
        group: how many query heads share one of them.
    """

    op: SchemaOp
    scale: float
    lead: tuple[Dim, ...]
    heads: Dim
    group: int
    is_open: bool


@dataclass(frozen=True)
class ExpandAttentionOfAnyLength(Rewrite[LongAttention]):
    """`scaled_dot_product_attention` of symbolic length to matmul, mask, softmax, matmul."""

    name: ClassVar[str] = "expand-attention-of-any-length"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ScaledDotProductAttentionDefault,)
    bound: ClassVar[Bound] = roundings("torch may run a fused kernel with another order")

    def match(self, op: SchemaOp, program: Program) -> LongAttention | Refusal | None:
        """Guards: a symbolic length, no dropout, a known scale, whole query groups."""
        q, k = dims(op.operands[0].type), dims(op.operands[1].type)
        if isinstance(q[-2], int) and isinstance(k[-2], int):
            return None
        refusal = drops_out(op)
        if refusal is not None:
            return refusal
        scale = scale_of(op)
        if isinstance(scale, Refusal):
            return scale
        if len(q) < 3 or len(q) != len(k) or UNKNOWN in (*q, *k):
            return Refusal("queries and keys are not stacks of heads of the same rank")
        group = 1
        if op.arg("enable_gqa"):
            if not (isinstance(q[-3], int) and isinstance(k[-3], int)):
                return Refusal("enable_gqa is set and the number of heads is symbolic")
            group = q[-3] // k[-3]
        lead = q[:-3]
        if group > 1:
            if not all(isinstance(size, int) for size in lead):
                return Refusal("enable_gqa is set, and the batch is symbolic as the length is")
            lead = () if all(size == 1 for size in lead) else lead
        mask = op.operand("attn_mask")
        is_open = mask is None or unopened_rows(mask, program) is None
        return LongAttention(op, scale, lead, k[-3], group, is_open)

    def deviates(self, match: LongAttention, program: Program) -> Deviation | None:
        """As of a known length: products of finite numbers may overflow."""
        q, k = match.op.operands[:2]
        return None if scores_are_finite(q, k, match.scale, program) else OVERFLOWN

    def build(self, match: LongAttention, rw: Rewriter) -> None:
        """q·s, QKᵀ, what is added, softmax, PV, and zeros where a row is closed."""
        op, lead = match.op, match.lead
        q, k, v = op.operands[:3]
        result = op.results[0]
        added, opened = self._mask(match, rw)
        if match.scale != 1.0:
            q = put(rw, aten.MulScalar, q, match.scale)
        if match.group > 1:
            q = view(rw, q, (*lead, match.heads, match.group, *dims(q.type)[-2:]))
            k, v = (view(rw, x, (*lead, match.heads, 1, *dims(x.type)[-2:])) for x in (k, v))
        rank = len(dims(k.type))
        scores = matmul(rw, q, permute(rw, k, [*range(rank - 2), rank - 1, rank - 2]))
        if added is not None:
            scores = put(rw, aten.AddTensor, scores, added)
        last = len(dims(scores.type)) - 1
        softmax = aten._SoftmaxDefault.make(scores, last, False, result_types=[scores.type])
        value = matmul(rw, emit(rw, softmax), v)
        if opened is not None:
            value = put(rw, aten.MulTensor, value, opened)
        rw.replace(op, [view(rw, value, dims(result.type))])

    def _mask(self, match: LongAttention, rw: Rewriter) -> tuple[SSAValue | None, SSAValue | None]:
        """What is added to the scores, and ones and zeros for rows that are open and closed."""
        op = match.op
        held = element(op.operands[0].type)
        if op.arg("is_causal"):
            return _added(rw, _causal(rw, op), held, is_open=True), None
        mask = op.operand("attn_mask")
        if mask is None:
            return None, None
        mask = _aligned(rw, mask, match)
        is_truth = element(mask.type) == i1
        if match.is_open:
            return (_added(rw, mask, held, is_open=True) if is_truth else mask), None
        lets = mask if is_truth else _is_finite(rw, mask)
        return _added(rw, mask, held, is_open=False), _opened(rw, lets, held)


def _aligned(rw: Rewriter, mask: SSAValue, match: LongAttention) -> SSAValue:
    """A mask whose axes broadcast to those of the scores, of which shared heads are two."""
    shape = dims(mask.type)
    if match.group == 1 or len(shape) < 3:
        return mask
    *lead, heads = shape[:-2]
    lead = [] if match.lead == () else lead
    split = (match.heads, match.group) if heads != 1 else (1, 1)
    wanted = [*lead, *split, *shape[-2:]]
    if not lead and heads == 1:
        return mask
    if heads == 1:
        value = aten.UnsqueezeDefault.make(
            mask, len(lead), result_types=[tensor(wanted, element(mask.type))]
        )
        return emit(rw, value)
    return view(rw, mask, wanted)


def _causal(rw: Rewriter, op: SchemaOp) -> SSAValue:
    """Whether key j stands at or before query i: truth values `[queries, keys]`."""
    rows, columns = (
        _positions(rw, op.operands[index], dims(op.operands[index].type)[-2]) for index in (0, 1)
    )
    (length,), (width,) = dims(rows.type), dims(columns.type)
    column = aten.UnsqueezeDefault.make(rows, 1, result_types=[tensor([length, 1], i64)])
    result = tensor([length, width], i1)
    return emit(rw, aten.LeTensor.make(columns, emit(rw, column), result_types=[result]))


def _positions(rw: Rewriter, counted: SSAValue, size: Dim) -> SSAValue:
    """0, 1, … for the rows of a tensor `[…, rows, depth]`."""
    if isinstance(size, int):
        return rw.constant(torch.arange(size), "positions")
    at = len(dims(counted.type)) - 2
    asked = emit(rw, aten.SymSizeInt.make(counted, at, result_types=[IntType(str(size))]))
    return emit(rw, aten.ArangeDefault.make(asked, result_types=[tensor([size], i64)]))


def _number(rw: Rewriter, value: float, held: Attribute) -> SSAValue:
    return rw.weight(rw.weights.number(value, torch_dtype(held), 0))


def _added(rw: Rewriter, mask: SSAValue, held: Attribute, *, is_open: bool) -> SSAValue:
    """Zeros where truth values let through; else −inf, or a finite number if a row may be closed.

    Numbers that are added already are kept, but for those that are below the finite one.
    """
    least = float("-inf") if is_open else torch.finfo(torch_dtype(held)).min / 2
    closed = _number(rw, least, held)
    if element(mask.type) != i1:
        return put(rw, aten.MaximumDefault, mask, closed)
    result = with_element(mask.type, held)
    zero = _number(rw, 0.0, held)
    return emit(rw, aten.WhereSelf.make(mask, zero, closed, result_types=[result]))


def _is_finite(rw: Rewriter, mask: SSAValue) -> SSAValue:
    """Which numbers of a mask that is added let something through."""
    result = with_element(mask.type, i1)
    return emit(rw, aten.NeScalar.make(mask, float("-inf"), result_types=[result]))


def _opened(rw: Rewriter, lets: SSAValue, held: Attribute) -> SSAValue:
    """One for each row of which an element lets through, zero for the others."""
    shape = (*dims(lets.type)[:-1], 1)
    some = emit(rw, aten.AnyDim.make(lets, -1, True, result_types=[tensor(shape, i1)]))
    return cast(rw, some, held)
