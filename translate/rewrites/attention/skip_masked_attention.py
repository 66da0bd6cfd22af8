"""Tiling: compute only the scores that a constant mask keeps, in blocks of queries.

Under a causal mask a query attends to no later key, so the first half of the queries needs only the
first half of the keys. In a sliding window each block of queries needs a band of keys. Scores that
a mask of −∞ hides have exactly the weight 0, so omitting them changes no sum except for the order
of its terms. The other numbers of an additive mask are still added. The work between the two
products grows with the square of the length, and much of it is for scores that are discarded: under
a causal mask half.

The cost model determines the number of blocks: it weighs slices and the starts of nodes against
multiplications and exponentials. Each block must save a twentieth of the whole.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import COSTS, Costs, costs_of
from stepwell.ir.choices import shape_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, cat, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite, is_never_nan
from stepwell.translate.rewrites.attention.arguments import MOST_SCORES, scale_of
from stepwell.translate.rewrites.attention.attention_pattern import scores_are_finite

SCORE = 5
"""Copies that a score costs in addition to its products: a mask, three passes of normalization, and
a reload.
"""
MOST_BLOCKS = 16
WHOLE = "whole"
"""The undivided attention, as one of the partitions."""
LANES = 16
"""Blocks are multiples of the widest tile of a product, so that no tile is partly filled."""


@recipe("band")
def band(mask: torch.Tensor, *, rows: list[int], columns: list[int]) -> torch.Tensor:
    """Return a view of a rectangle of a mask's last two axes; an axis of size one is not sliced."""
    for axis, (start, stop) in ((2, rows), (1, columns)):
        if mask.dim() >= axis and mask.shape[-axis] != 1:
            mask = mask.narrow(-axis, start, stop - start)
    return mask


@dataclass(frozen=True)
class Block:
    """Queries `rows` attend to keys `columns` alone; in a free block the mask has no effect."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    is_free: bool = field(default=False, compare=False, repr=False)


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation that a NaN or ∞ that the mask hides no longer affects the result; None
    if that cannot occur.
    """
    q, k, v = op.operands[:3]
    unseen = Deviation("a NaN or ∞ that the mask hides is not seen", accepted=True)
    finite = scores_are_finite(q, k, no_refusal(scale_of(op)), program), is_finite(v, program)
    return unseen.unless(*finite, is_never_nan(k, program))


@lowers(
    "aten.scaled_dot_product_attention.default",
    to="aten",
    takes_empty=False,
    bound=roundings("sums over fewer keys, in another order"),
    deviation=_loses,
    sample="""
    %o = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true, scale=1.0) : (tensor<1x8x128x64xf32>, tensor<1x8x128x64xf32>, tensor<1x8x128x64xf32>) -> tensor<1x8x128x64xf32>
    """,
)
def skip_masked_attention(
    q: Value, k: Value, v: Value, *, op: SchemaOp, b: Rewriter
) -> Value | None:
    """Write one attention as several over fewer keys, concatenated along the queries."""
    mask, is_causal = op.operand("attn_mask"), op.arg("is_causal")
    key = weight_key(mask) if mask is not None else None
    if op.arg("dropout_p") or not (is_causal or key is not None) or is_block(op):
        return None
    if len({value.shape[:-2][:-1] for value in (q, k, v)}) > 1:
        refuse("queries, keys and values have different leading axes")
    if not q.shape[:-2] or k.shape[:-2] != v.shape[:-2]:
        refuse("queries, keys and values have different heads, or none")
    sizes = sizes_of(op, costs_of(b.program.context))
    if sizes is None:
        refuse("the number of queries or keys, or their size, is symbolic")
    if sizes.queries * sizes.keys > MOST_SCORES:
        refuse(f"there are more than {MOST_SCORES} scores")
    if key is None:
        found = blocks_under_causal(sizes)
    else:
        found = blocks_under(no_refusal(kept_scores(b.weights.get(key))).of(sizes), sizes)
    if found is None:
        return None
    shape = f"{shape_of(op)} keeping {found.digest}"
    costs = {name: cost(blocks, sizes) for name, blocks in found.blocks.items()}
    chosen = b.program.context.choose("skip-masked-attention", shape, costs, found.best)
    if chosen == WHOLE:
        refuse("the scores that the mask hides cost less than the slices would")
    scale = no_refusal(scale_of(op))
    if scale != 1.0:  # On all of q: its layer can absorb it.
        q = q * scale
    at, parts = q.rank - 2, list[Value]()
    options: dict[str, Any] = {"enable_gqa": True} if op.arg("enable_gqa") else {}
    for block in found.blocks[chosen]:
        query = q.slice(at, *block.rows)
        arguments = [side.slice(at, *block.columns) for side in (k, v)]
        if not block.is_free:
            arguments.append(Value(mask_of(key, block, b), b))
        part = query.call(
            aten.ScaledDotProductAttentionDefault,
            *arguments,
            scale=1.0,
            **options,
            shape=(*query.shape[:-1], v.shape[-1]),
        )
        parts.append(part)
    return cat(parts, at)


def is_block(op: SchemaOp) -> bool:
    """Whether an attention is one of several over consecutive queries: it is divided already."""
    users = [use.operation for use in op.results[0].uses]
    return [type(user) for user in users] == [aten.CatDefault] and all(
        isinstance(value.owner, aten.ScaledDotProductAttentionDefault)
        for value in users[0].operands
    )


@dataclass(frozen=True)
class AttentionSizes:
    """The lengths of an attention; `heads` and `key_heads` count the static leading axes."""

    heads: int
    key_heads: int
    queries: int
    keys: int
    depths: int
    costs: Costs = COSTS
    """The costs that decide between partitions."""


def sizes_of(op: SchemaOp, costs: Costs = COSTS) -> AttentionSizes | None:
    """Return an attention's head counts, lengths and head sizes for the cost model, or None if a
    length or head size is symbolic.
    """
    q, k, v = (dims(value.type) for value in op.operands[:3])
    known = [size for size in (q[-2], k[-2], q[-1], v[-1]) if isinstance(size, int)]
    if len(known) < 4:
        return None
    heads, key_heads = (prod(d for d in shape[:-2] if isinstance(d, int)) for shape in (q, k))
    return AttentionSizes(heads, key_heads, known[0], known[1], known[2] + known[3], costs)


@dataclass(frozen=True)
class Scores:
    """What a mask does to each score: two boolean matrices that broadcast to queries × keys.

    `kept`: the score has weight in some head or sample. `free`: the mask changes it in none.
    """

    kept: torch.Tensor
    free: torch.Tensor

    @cached_property
    def ranges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return for each query the first key that it keeps and the end of its range."""
        bits = self.kept.to(torch.uint8)
        return bits.argmax(dim=1), bits.shape[1] - bits.flip(1).argmax(dim=1)

    def block(self, rows: tuple[int, int], columns: tuple[int, int]) -> Block:
        """Return the block of these queries and keys, and whether the mask has no effect in it."""
        return Block(rows, columns, bool(self.free[slice(*rows), slice(*columns)].all()))

    def of(self, sizes: AttentionSizes) -> Scores:
        """Return the matrices `kept` and `free`, expanded to queries × keys."""
        shape = (sizes.queries, sizes.keys)
        return Scores(self.kept.expand(shape), self.free.expand(shape))


def causal(sizes: AttentionSizes) -> torch.Tensor:
    """Return the mask of `is_causal`: true where the key is not after the query."""
    return torch.ones(sizes.queries, sizes.keys, dtype=torch.bool).tril()


def kept_scores(mask: torch.Tensor) -> Scores | Refusal:
    """Return where a boolean or additive mask keeps scores; a refusal if it hides a whole row.

    An additive mask hides with −∞. The least number of float32 and bfloat16 hides too, as no score
    is that low: its weight is 0 wherever the row has a score that the mask keeps.
    """
    if mask.dtype == torch.bool:
        kept = open_ = free = mask
    else:
        wide = mask.dtype in (torch.float32, torch.bfloat16)
        least = torch.finfo(mask.dtype).min if wide else -math.inf
        kept, open_, free = ~(mask <= least), mask > (least / 2 if wide else least), mask == 0
    if not bool(open_.any(dim=-1).all()):
        return Refusal("the mask hides a whole row of scores")
    matrix = (-1, *mask.shape[-2:])
    return Scores(kept.reshape(matrix).any(dim=0), free.reshape(matrix).all(dim=0))


@dataclass(frozen=True)
class Partitions:
    """Partitions of an attention into blocks, by the number of blocks.

    Attributes:
        blocks: each partition; `WHOLE` is the undivided attention.
        best: the partition of least cost.
    """

    blocks: Mapping[str, tuple[Block, ...]]
    best: str

    @cached_property
    def digest(self) -> str:
        """Return a digest of a mask, which identifies the choice of blocks for it."""
        return hashlib.sha256(repr(sorted(self.blocks.items())).encode()).hexdigest()[:8]


@cache
def blocks_under_causal(sizes: AttentionSizes) -> Partitions | None:
    """Return the possible partitions of a causal attention; cached, as the layers of a model share
    them.
    """
    scores = kept_scores(causal(sizes))
    assert isinstance(scores, Scores), "a query sees the first key at least"
    return blocks_under(scores, sizes)


def blocks_under(scores: Scores, sizes: AttentionSizes) -> Partitions | None:
    """Return the possible partitions of a masked attention into blocks; None if the mask hides no
    score.
    """
    if bool(scores.kept.all()):
        return None
    made = partitions(scores, sizes)
    return Partitions(made, best_of(made, sizes))


def partitions(scores: Scores, sizes: AttentionSizes) -> dict[str, tuple[Block, ...]]:
    """Return the possible partitions of the queries: one block, then more and more blocks of equal
    height.
    """
    counts = range(1, MOST_BLOCKS + 1)
    steps = {LANES * -(-sizes.queries // (LANES * count)) for count in counts}
    whole = scores.block((0, sizes.queries), (0, sizes.keys))
    found: dict[str, tuple[Block, ...]] = {WHOLE: (whole,)}
    for step in sorted(steps, reverse=True):
        blocks = blocks_of(scores, step)
        if blocks != found[WHOLE]:
            found[str(len(blocks))] = blocks
    return found


def best_of(made: Mapping[str, tuple[Block, ...]], sizes: AttentionSizes) -> str:
    """Return the partition of least cost, where each further block saves a part of the whole.

    Under a causal mask the second saves 25 %, the third 8 %, the fourth 4 %. Where heads share keys
    each must save twice the part: queries and results of such a block are reshaped too.
    """
    worth = sizes.costs.worth * (1 if sizes.heads == sizes.key_heads else 2)
    best, least = WHOLE, cost(made[WHOLE], sizes)
    whole = least
    for name, blocks in made.items():
        more = len(blocks) - len(made[best]) if best != WHOLE else 1
        if (costs := cost(blocks, sizes)) <= least - more * worth * whole:
            best, least = name, costs
    return best


def blocks_of(scores: Scores, step: int) -> tuple[Block, ...]:
    """Return blocks of `step` queries, each with the least range of keys that it keeps."""
    first, stop = scores.ranges
    blocks: list[Block] = []
    for start in range(0, len(first), step):
        rows = slice(start, start + step)
        columns = int(first[rows].min()), int(stop[rows].max())
        blocks.append(scores.block((start, start + len(first[rows])), columns))
    return tuple(blocks)


def cost(blocks: Sequence[Block], sizes: AttentionSizes) -> float:
    """Return the cost of an attention in these blocks, in multiplications."""
    copy = sizes.costs.products_a_copy
    total = sizes.costs.block / sizes.costs.product * (len(blocks) - 1)
    for (start, stop), (first, last) in ((block.rows, block.columns) for block in blocks):
        rows, columns = stop - start, last - first
        total += sizes.heads * rows * columns * (sizes.depths + SCORE * copy)
        if columns != sizes.keys:
            total += sizes.key_heads * columns * sizes.depths * copy
        if len(blocks) > 1:
            total += sizes.heads * rows * sizes.depths * copy
    return total


def mask_of(key: str | None, block: Block, b: Rewriter) -> SSAValue:
    """Build a constant with a block of an attention's mask, or of its causal mask."""
    rows, columns = list(block.rows), list(block.columns)
    if key is None:
        return b.constant(torch.arange(*columns) <= torch.arange(*rows)[:, None], "causal")
    return b.weight(b.weights.derive("band", [key], rows=rows, columns=columns))


RULES = lowerings_of(__name__)
