"""Attention whose queries are pixels of an image of symbolic size, without merging its axes.

The queries of a vision transformer are an image's rows, `[N, H·W, heads·depth]`, split into heads.
Where both sizes are symbolic the result could not be split into an image again (see
`keep-axes-apart`). Each head separately needs no split: its queries are a slice of the features,
`[N, H, W, depth]`, keys and values are broadcast over H, and the heads' results are concatenated.

Before:
    %v = aten.view.default(%q, [1, -1, 2, 4]) : (tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>) -> tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>
    %p = aten.permute.default(%v, [0, 2, 1, 3]) : (tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>) -> tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>
    %o = aten.scaled_dot_product_attention.default(%p, %k, %k) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>, tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>, tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>
After:
    %0 = aten.slice.Tensor(%q, 3, 0, 4, 1) : (tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>) -> tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>
    %1 = aten.slice.Tensor(%k, 1, 0, 1, 1) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>
    %2 = aten.slice.Tensor(%k, 1, 0, 1, 1) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>
    %3 = aten.scaled_dot_product_attention.default(%0, %1, %2, scale=0.5) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>, tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>, tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>) -> tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>
    %4 = aten.slice.Tensor(%q, 3, 4, 8, 1) : (tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>) -> tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>
    %5 = aten.slice.Tensor(%k, 1, 1, 2, 1) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>
    %6 = aten.slice.Tensor(%k, 1, 1, 2, 1) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>
    %7 = aten.scaled_dot_product_attention.default(%4, %5, %6, scale=0.5) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>, tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>, tensor<1x1x?x4xf32, #stepwell.shape<[1, 1, "n", 4]>>) -> tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>
    %8 = aten.cat.default([%3, %7], 3) : (tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>, tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>) -> tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>
    %9 = aten.view.default(%8, [1, -1, 2, 4]) : (tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>) -> tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>
    %o = aten.permute.default(%9, [0, 2, 1, 3]) : (tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>) -> tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.attention.arguments import drops_out, scale_of
from stepwell.translate.rewrites.attention.attention_pattern import scores_are_finite
from stepwell.translate.rewrites.building import cat, emit, permute, slice_axis, view


@dataclass(frozen=True)
class ImageQueries:
    """An attention, the image `[N, H, W, heads·depth]` of its queries, and their scale."""

    op: SchemaOp
    image: SSAValue
    scale: float


@dataclass(frozen=True)
class AttendFromImage(Rewrite[ImageQueries]):
    """Attention over merged symbolic axes to one attention per head over separate axes."""

    name: ClassVar[str] = "attend-from-image"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ScaledDotProductAttentionDefault,)
    bound: ClassVar[Bound] = roundings("torch may run a fused kernel with another order")

    def match(self, op: SchemaOp, program: Program) -> ImageQueries | Refusal | None:
        """Guards: an image of two symbolic sizes, as many heads of keys, no mask, no dropout."""
        queries, keys = op.operands[:2]
        image = queried_image(queries)
        if image is None:
            return None
        if op.operand("attn_mask") is not None or op.arg("is_causal"):
            return Refusal("a mask selects which positions of the image attend to which")
        if dims(keys.type)[:2] != dims(queries.type)[:2]:
            return Refusal("queries and keys are not the same heads of the same batch")
        refusal, scale = drops_out(op), scale_of(op)
        if refusal is not None:
            return refusal
        if isinstance(scale, Refusal):
            return scale
        return ImageQueries(op, image, scale)

    def deviates(self, match: ImageQueries, program: Program) -> Deviation | None:
        """Kernels multiply by the scale before or after the product."""
        q, k = match.op.operands[:2]
        return REORDERED.unless(scores_are_finite(q, k, match.scale, program))

    def build(self, match: ImageQueries, rw: Rewriter) -> None:
        """Build each head from its slice of the features, its keys and values; then concatenate."""
        op, image = match.op, match.image
        batch, heads, places, depth = dims(op.results[0].type)
        width = dims(op.operands[0].type)[3]
        assert isinstance(heads, int) and isinstance(width, int)
        values: list[SSAValue] = []
        for head in range(heads):
            query = slice_axis(rw, image, 3, head * width, (head + 1) * width)
            key, value = (slice_axis(rw, x, 1, head, head + 1) for x in op.operands[1:3])
            values.append(_attention(rw, query, key, value, match.scale))
        together = view(rw, cat(rw, values, 3), [batch, places, heads, depth])
        rw.replace(op, [permute(rw, together, [0, 2, 1, 3])])


def queried_image(queries: SSAValue) -> SSAValue | None:
    """Return `[N, H, W, heads·depth]` of queries `[N, heads, H·W, depth]`; H, W symbolic."""
    shape, rows = dims(queries.type), queries
    if len(shape) != 4:
        return None
    batch, heads, _, depth = shape
    if isinstance(queries.owner, aten.PermuteDefault):
        if queries.owner.arg("dims") != [0, 2, 1, 3]:
            return None
        rows = queries.owner.operands[0]
    elif heads != 1:
        return None
    if not isinstance(rows.owner, aten.ViewDefault):
        return None
    image = rows.owner.operands[0]
    image_dims = dims(image.type)
    if len(image_dims) != 4 or image_dims[0] != batch:
        return None
    if not isinstance(heads, int) or not isinstance(depth, int) or image_dims[3] != heads * depth:
        return None
    return image if all(isinstance(size, Size) for size in image_dims[1:3]) else None


def _attention(
    rw: Rewriter, query: SSAValue, key: SSAValue, value: SSAValue, scale: float
) -> SSAValue:
    """Broadcast keys and values along the image's rows, the second axis."""
    result = tensor([*dims(query.type)[:-1], dims(value.type)[-1]], element(query.type))
    attention = aten.ScaledDotProductAttentionDefault.make(
        query, key, value, scale=scale, result_types=[result]
    )
    return emit(rw, attention)
