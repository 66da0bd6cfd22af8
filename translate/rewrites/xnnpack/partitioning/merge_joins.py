"""Canonicalization: a concatenation within another along the same axis becomes part of it.

A node takes five tensors at most, so that longer lists are groups of groups. `stepwell discover`
found that the last group of a list often fits into the node that reads it.

Before:
    %a = xnnpack.concatenate2(%x, %z, axis=1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
    %y = xnnpack.concatenate2(%a, %x, axis=1) : (tensor<2x6xf32>, tensor<2x3xf32>) -> tensor<2x9xf32>
After:
    %y = xnnpack.concatenate3(%x, %z, %x, axis=1) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x9xf32>
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack.movement import Concatenate
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import MOST_JOINED
from stepwell.translate.rules.predicates import reads_once


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


RULES = lowerings_of(__name__)
