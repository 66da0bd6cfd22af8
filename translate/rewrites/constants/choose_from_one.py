"""Choices of one element of one: groups of experts of which there is one.

Routers that are limited to some groups of experts are often configured with a single group. What is
known of its place decides the masks behind it while lowering.

rule choose-from-one
    `topk` of rows of one element takes it, at place 0.
Before:
    %v, %i = aten.topk.default(%x, 1, $dim, …)
After:
    %i = aten.full_like.default(%x, 0, dtype=i64)
    %v = %x
where is_of_one(%x, $dim)
for %x = "tensor<3x1xf32>", $dim = -1
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis, is_known
from stepwell.translate.rules import read_rules


def is_of_one(value: SSAValue, dim: int) -> bool:
    """Whether the size of an axis is one, and the others are known, if as expressions alone."""
    shape = dims(value.type)
    return bool(shape) and is_known(shape) and shape[axis(dim, len(shape))] == 1


RULES = read_rules(__doc__, globals())
