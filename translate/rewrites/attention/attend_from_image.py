"""Attention whose queries are pixels of an image of symbolic size, without merging its axes.

The queries of a vision transformer are an image's rows, `[N, H·W, heads·depth]`, split into heads.
Where both sizes are symbolic the result could not be split into an image again (see
`keep-axes-apart`). Each head separately needs no split: its queries are a slice of the features,
`[N, H, W, depth]`, keys and values are broadcast over H, and the heads' results are concatenated.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.attention.arguments import drops_out, scale_of
from stepwell.translate.rewrites.attention.attention_pattern import scores_are_finite


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of moving the scale before or after the product: scores may overflow."""
    queries, keys = op.operands[:2]
    return REORDERED.unless(scores_are_finite(queries, keys, no_refusal(scale_of(op)), program))


@lowers(
    "aten.scaled_dot_product_attention.default",
    to="aten",
    bound=roundings("torch may run a fused kernel with another order"),
    deviation=_loses,
    sample="""
    %v = aten.view.default(%q, [1, -1, 2, 4]) : (tensor<1x?x?x8xf32, #stepwell.shape<[1, "h", "w", 8]>>) -> tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>
    %p = aten.permute.default(%v, [0, 2, 1, 3]) : (tensor<1x?x2x4xf32, #stepwell.shape<[1, "h*w", 2, 4]>>) -> tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>
    %o = aten.scaled_dot_product_attention.default(%p, %k, %k) : (tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>, tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>, tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "n", 4]>>) -> tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "h*w", 4]>>
    """,
)
def attend_from_image(q: Value, k: Value, v: Value, *, op: SchemaOp, out: Out) -> Value | None:
    """Attend from each head's slice of an image's features to its keys and values; concatenate.

    Keys and values are broadcast along the image's rows, the second axis.
    """
    image = queried_image(q.ssa)
    if image is None:
        return None
    if op.operand("attn_mask") is not None or op.arg("is_causal"):
        refuse("a mask selects which positions of the image attend to which")
    if k.shape[:2] != q.shape[:2]:
        refuse("queries and keys are not the same heads of the same batch")
    no_refusal(drops_out(op))
    scale, image = no_refusal(scale_of(op)), Value(image, q.b)
    batch, heads, places, depth = out.shape
    width = q.shape[3]
    values: list[Value] = []
    for head in range(heads):
        query = image.slice(3, head * width, (head + 1) * width)
        key, value = (x.slice(1, head, head + 1) for x in (k, v))
        shape = *query.shape[:-1], value.shape[-1]
        attended = query.call(
            aten.ScaledDotProductAttentionDefault, key, value, scale=scale, shape=shape
        )
        values.append(attended)
    return cat(values, 3).view(batch, places, heads, depth).permute([0, 2, 1, 3])


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


RULES = lowerings_of(__name__)
