"""Grouped-query attention: let query heads share keys and values that were repeated for them.

Grouped-query attention (Ainslie et al. 2023) is mostly written with keys repeated G times along the
heads, `x[:, :, None].expand(…).reshape(…)` or `repeat_interleave`. The attention op itself can
state that query head h reads key head h // G. No keys are then copied, and the rows of G query
heads are rows of one product.

rule share-repeated-heads
    Attention over repeated keys and values to grouped-query attention.
Before:
    %y = aten.scaled_dot_product_attention.default(%q, %k, %v, …, enable_gqa=false)
After:
    %a = unrepeated($keys)
    %b = unrepeated($values)
    %y = aten.scaled_dot_product_attention.default(%q, %a, %b, …, enable_gqa=true)
with $keys = repeated(%k)
with $values = repeated(%v)
where has_heads(%q) else "the queries have no heads"
where are_heads_of(%q, %k) else "the queries have other heads than the repeated keys"
where are_repeated_alike($keys, $values) for target else "keys and values are not repeated equally often"
unless drops_out(%y)
bound of roundings: "torch may run another kernel"
for %u = aten.view.default(%z, [1, 2, 1, 5, 8])
for %e = aten.expand.default(%u, [1, 2, 2, 5, 8])
for %k = aten.view.default(%e, [1, 4, 5, 8])
for %d = aten.view.default(%w, [1, 2, 1, 5, 8])
for %f = aten.expand.default(%d, [1, 2, 2, 5, 8])
for %v = aten.view.default(%f, [1, 4, 5, 8])
for %q = "tensor<1x4x3x8xf32>", %z = "tensor<1x2x5x8xf32>", %w = "tensor<1x2x5x8xf32>"
not for %q = "tensor<3x8xf32>"
not for %w = "tensor<1x1x5x8xf32>"; %d = aten.view.default(%w, [1, 1, 1, 5, 8]);
    %f = aten.expand.default(%d, [1, 1, 4, 5, 8])
not for $dropout_p = 0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import view
from stepwell.translate.rules import read_rules


@dataclass(frozen=True)
class Repeated:
    """A tensor of repeated heads: the operand, and its shape `[…, heads, rows, depth]`."""

    value: SSAValue
    shape: tuple[Dim, ...]


def has_heads(queries: SSAValue) -> bool:
    """Whether a tensor has at least three axes, so that one of them can be heads."""
    return len(dims(queries.type)) >= 3


def are_heads_of(queries: SSAValue, keys: SSAValue) -> bool:
    """Whether queries have as many heads as keys: a single head would be broadcast."""
    return dims(queries.type)[-3] == dims(keys.type)[-3]


def are_repeated_alike(keys: Repeated, values: Repeated) -> bool:
    """Whether the heads of the keys and of the values are repeated in the same way."""
    return keys.shape[:-2] == values.shape[:-2]


def drops_out(attention: SSAValue) -> Refusal | None:
    """Refuse an attention with dropout."""
    rate = cast(SchemaOp, attention.owner).arg("dropout_p")
    return Refusal(f"dropout_p is {rate}; export the model in eval mode") if rate else None


def unrepeated(rw: Rewriter, heads: Repeated) -> SSAValue:
    """Build the tensor of heads before their repetition."""
    return view(rw, heads.value, heads.shape)


def repeated(value: SSAValue) -> Repeated | None:
    """Return the operand of a `[…, heads, rows, depth]` tensor that repeats each head in turn.

    It is repeated by an expand of an axis of size one next to the heads, which a view then merges
    with the heads before it; or by an expand of the heads themselves, if there is one.
    """
    shape = dims(value.type)
    owner = value.owner
    if isinstance(owner, aten.ViewDefault):
        wide = dims(owner.operands[0].type)
        at = len(wide) - 3
        if len(wide) < 4:
            return None
        heads, times = wide[at - 1], wide[at]
        merged = heads * times if isinstance(heads, int) and isinstance(times, int) else None
        if shape != (*wide[: at - 1], merged, *wide[-2:]):
            return None
        owner = owner.operands[0].owner
    else:
        wide, at = shape, len(shape) - 3
    if not isinstance(owner, aten.ExpandDefault):
        return None
    narrow = dims(owner.operands[0].type)
    if wide[at] == 1 or narrow != (*wide[:at], 1, *wide[at + 1 :]):
        return None
    kept = narrow if wide is shape else (*narrow[:at], *narrow[at + 1 :])
    source = owner.operands[0]
    if isinstance(source.owner, aten.ViewDefault) and dims(source.owner.operands[0].type) == kept:
        source = source.owner.operands[0]
    return Repeated(source, kept)


(ShareRepeatedHeads,) = RULES = read_rules(__doc__, globals())
