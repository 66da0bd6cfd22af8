"""Simplification: a range from a number that is not positive keeps every absolute value.

`stepwell discover` found it; the lowering of pools by a norm writes it.

rule clamp-of-absolute
    The clamp removes nothing.
Before:
    %a = xnnpack.abs(%x)
    %y = xnnpack.clamp(%a, output_min=$low) : (tensor<$*S x $E>) -> tensor<$*S x $E>
After:
    %y = itself(%a)
where is_at_most_zero($low)
for $S = [2, 3], $low = 0.0
not for $low = 1.0
"""

from stepwell.translate.rules import read_rules


def is_at_most_zero(number: float) -> bool:
    """Whether a number is not positive."""
    return number <= 0


(ClampOfAbsolute,) = RULES = read_rules(__doc__, globals())
