"""Simplification: a selection by a negated condition exchanges its operands.

`stepwell discover` found it; the lowering of `nll_loss` writes it.

rule select-by-not
    One operator less.
Before:
    %n = tosa.logical_not(%c)
    %y = tosa.select(%n, %x, %z)
After:
    %y = tosa.select(%c, %z, %x)
for %c = "tensor<2x3xi1>", %x = "tensor<2x3xf32>", %z = "tensor<2x3xf32>"
"""

from stepwell.translate.rules import read_rules

(SelectByNot,) = RULES = read_rules(__doc__, globals())
