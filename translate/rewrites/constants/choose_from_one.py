"""Constant folding: remove a selection among one element, such as a single group of experts.

Routers that are limited to some groups of experts are often configured with a single group. The
index is then known, and so are the masks that depend on it.

rule choose-from-one
    `topk` of rows of one element, which have the result's type, takes it, at place 0.
Before:
    %v, %i = aten.topk.default(%x, 1, $dim, …)
After:
    %i = aten.full_like.default(%x, 0, dtype=i64)
    %v = %x
for %x = "tensor<3x1xf32>", $dim = -1
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())
