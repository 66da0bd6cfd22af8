"""Choices of one element of one: groups of experts of which there is one.

Routers that are limited to some groups of experts are often configured with a single group. What is
known of its place decides the masks behind it while lowering.

rule choose-from-one
    `topk` of rows of one element takes it, at place 0.
Before:
    %v, %i = aten.topk.default(%x, 1, $dim, …)
After:
    %i = aten.full.default(sizes(%x), 0, dtype=i64)
    %v = %x
where is_of_one(%x, $dim)
for %x = "tensor<3x1xf32>", $dim = -1
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.translate.rewrites.building import axis, static_dims
from stepwell.translate.rules import read_rules


def is_of_one(value: SSAValue, dim: int) -> bool:
    """Whether the sizes are known, and that of an axis is one."""
    shape = static_dims(value)
    return bool(shape) and shape[axis(dim, len(shape))] == 1


def sizes(value: SSAValue) -> list[int]:
    """The sizes, which are numbers."""
    return list(static_dims(value) or ())


RULES = read_rules(__doc__, globals())
