"""Hoisting: split an axis before a permutation, so that the split meets the view that merged it.

`torch.nn.MultiheadAttention` merges batch and heads, permutes, and splits them again. With static
sizes these views cost nothing. XNNPACK infers one symbolic size, but both views have two. Before
the permutation, the splitting view cancels the merging view.

rule part-before-permute
    `view(permute(x))` to `permute(view(x))` where two sizes are symbolic and one axis is parted.
Before:
    %p = aten.permute.default(%x, $order)
    %y = aten.view.default(%p, …) : (…) -> $T
After:
    %a = apart(%x, $parted)
    %y = aten.permute.default(%a, order_of_parts($parted))
with $parted = parted(%x, $order, %p, %y)
for %b = aten.sym_size.int(%x, 1)
for %n = aten.sym_size.int(%x, 0)
for $order = [2, 1, 0], $size = [2, 3, %b, %n]
for %x = 'tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>'
for $T = 'tensor<2x3x?x?xf32, #stepwell.shape<[2, 3, "b", "n"]>>'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    is_known,
    is_open_once,
    view,
)
from stepwell.translate.rewrites.sizes.keep_axes_apart import spread
from stepwell.translate.rules import read_rules


@dataclass(frozen=True)
class Parted:
    """The shape that splits axis `at` of a permutation's result into `count` axes."""

    order: tuple[int, ...]
    at: int
    count: int
    shape: tuple[Dim, ...]


def parted(
    value: SSAValue, order: Sequence[int], permuted: SSAValue, made: SSAValue
) -> Parted | Refusal | None:
    """Return the axes that a view splits with sizes that XNNPACK cannot infer."""
    given, shape = dims(permuted.type), dims(made.type)
    count = len(shape) - len(given) + 1
    if count < 2 or is_open_once(shape) or not is_known((*given, *shape)):
        return None
    normal = tuple(axis(each, len(order)) for each in order)
    for at in range(len(given)):
        if given[:at] == shape[:at] and given[at + 1 :] == shape[at + count :]:
            source = dims(value.type)
            parts, first = shape[at : at + count], normal[at]
            ahead = (*source[:first], *parts, *source[first + 1 :])
            return cannot_be_viewed_as(value, ahead) or Parted(normal, at, count, ahead)
    return None


def apart(rw: Rewriter, value: SSAValue, match: Parted) -> SSAValue:
    """Build the splitting view on the permutation's operand."""
    return view(rw, value, match.shape)


def order_of_parts(match: Parted) -> list[int]:
    """Build the permutation of the split axes."""
    return list(spread(match.order, match.order[match.at], match.count))


(PartBeforePermute,) = RULES = read_rules(__doc__, globals())
