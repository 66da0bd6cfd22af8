"""An expand to the shape its operand has repeats nothing.

rule remove-noop-expand
    `scaled_dot_product_attention` and `matmul` decompose to four expands that repeat nothing.
    XNNPACK has no expand: in DeiT-Tiny 48 of them stand outside delegates and split every
    attention in pieces.
Before:
    %y = aten.$expand.default(%x, $?s, …)
After:
    %y = %x
for each $expand of expand, expand_copy, broadcast_to
for $s = [2, 3]

rule remove-noop-expand-as
    The same, by a tensor of the shape.
Before:
    %y = aten.expand_as.default(%x, %z)
After:
    %y = %x
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())
