"""Lower softmax over the last axis to a softmax node; over another axis, add permutes around it.

rule lower-softmax
    The axis is brought last, and back.
Before:
    %y = aten.$softmax(%x, $d, …)
After:
    %l = permute(%x, $o)
    %s = xnnpack.softmax(%l)
    %y = permute(%s, inverse($o))
unless is_not_for_xnnpack(%y) for target
with $o = axis_last(%x, $d)
loses FLUSHED
bound of roundings: "XNNPACK approximates exp"
for each $softmax of _softmax.default, softmax.int
for $d = 0, $half_to_float = false
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.ir.declared import numerics
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.translate.rewrites import building
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.xnnpack.nodes import lower_clamp
from stepwell.translate.rewrites.xnnpack.nodes.guards import may_be_empty
from stepwell.translate.rules import read_rules


def axis_last(value: SSAValue, number: int) -> list[int] | Refusal:
    """Return the axis order that puts one axis last."""
    rank = len(dims(value.type))
    if rank == 0:
        return Refusal("the operand is a scalar, which has no axis")
    at = axis(number, rank)
    if refusal := may_be_empty(value, [dims(value.type)[at]]):
        return refusal
    return [*(i for i in range(rank) if i != at), at]


def inverse(order: Sequence[int]) -> list[int]:
    """Return the inverse of an axis order."""
    return [order.index(i) for i in range(len(order))]


RULES = read_rules(__doc__, vars(numerics) | vars(building) | vars(lower_clamp) | globals())
