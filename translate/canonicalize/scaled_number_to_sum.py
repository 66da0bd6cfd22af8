"""Canonicalize sums with a scaled number: the factor is applied to the number.

rule scaled-number-to-sum
    `x + alpha · number` is one sum.
Before:
    %y = aten.$op.Scalar(%x, $number, $alpha)
After:
    %y = aten.$op.Scalar(%x, scaled($number, $alpha))
where not is_one($alpha) for termination
bound of roundings: "torch rounds the parts of the sum otherwise"
for each $op of add, sub
for $number = 3.0, $alpha = 2
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules


def scaled(number: float, alpha: float) -> float:
    """Return `number * alpha`; an integer if both are integers."""
    return number * alpha


RULES = read_rules(__doc__, globals(), ("tosa/decompose",))
