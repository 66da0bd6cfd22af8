"""Canonicalization: slices in a row are one, and a concatenation within another is part of it.

`stepwell discover` found both rules in lowered programs: a slice of a slice remains where two
lowerings each write one, and concatenations of more than five tensors are groups of groups.

rule merge-slices
    A part of a part is a part.
Before:
    %a = xnnpack.static_slice(%x, offsets=$first, sizes=$some)
    %y = xnnpack.static_slice(%a, offsets=$second, sizes=$sizes) : (…) -> $T
After:
    %y = xnnpack.static_slice(%x, offsets=sums($first, $second), sizes=$sizes)
where are_stated($sizes) else "a size is that to the end of the first part"
for $first = [1, 0], $some = [3, 4], $second = [1, 2], $sizes = [2, 1], %x = "tensor<5x4xf32>", $T = "tensor<2x1xf32>"
not for $sizes = [0, 1]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowers, step
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import MOST_JOINED
from stepwell.translate.rules import read_rules
from stepwell.translate.rules.predicates import reads_once


def sums(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the sums of two lists, number by number."""
    return [a + b for a, b in zip(one, other, strict=True)]


def are_stated(sizes: Sequence[int]) -> bool:
    """Whether no size is 0, which stands for all elements up to the end."""
    return all(size > 0 for size in sizes)


@lowers(
    *(each.name for count, each in xnnpack.CONCATENATES.items() if count < MOST_JOINED),
    to="aten",
    sample="""
    %a = xnnpack.concatenate2(%x, %x, axis=1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
    %y = xnnpack.concatenate2(%a, %x, axis=1) : (tensor<2x6xf32>, tensor<2x3xf32>) -> tensor<2x9xf32>
    """,
)
def merge_joins(*, op: Concatenate, b: Rewriter) -> Value | None:
    """Concatenate the parts of a concatenation that nothing else reads directly."""
    at = op.integer("axis", 0)
    for place, value in enumerate(op.operands):
        inner = value.owner
        if not isinstance(inner, Concatenate) or inner.integer("axis", 0) != at:
            continue
        parts: list[SSAValue] = [*op.operands[:place], *inner.operands, *op.operands[place + 1 :]]
        if len(parts) <= MOST_JOINED and reads_once(value):
            joined = xnnpack.CONCATENATES[len(parts)].make(*parts, result=op.output.type, axis=at)
            return Value(b.insert(joined).results[0], b)
    return None


RULES = read_rules(__doc__, globals())
MERGES = (*(rule() for rule in RULES), step(merge_joins))
