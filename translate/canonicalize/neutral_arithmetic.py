"""Remove arithmetic with a neutral number, where removing it is exact.

Removing `x + 0` is not exact for floats: it turns −0.0 into 0.0, while `x + (−0.0)` does not. For
integers both are exact. A float number that promotes an integer tensor changes the type, which the
driver checks when it replaces the result by the operand.

rule remove-neutral-product
    x·1.
Before:
    %y = aten.mul.Scalar(%x, 1)
After:
    %y = %x

rule remove-neutral-quotient
    x/1.
Before:
    %y = aten.div.Scalar(%x, 1)
After:
    %y = %x

rule remove-first-power
    x¹.
Before:
    %y = aten.pow.Tensor_Scalar(%x, 1)
After:
    %y = %x

rule remove-neutral-sum
    x + 0.
Before:
    %y = aten.add.Scalar(%x, $?c, $?a)
After:
    %y = %x
where is_zero($c)
unless loses_negative_zero(%x, $c, $a, 1)
for $c = -0.0, $a = 1

rule remove-neutral-difference
    x − 0.
Before:
    %y = aten.sub.Scalar(%x, $?c, $?a)
After:
    %y = %x
where is_zero($c)
unless loses_negative_zero(%x, $c, $a, -1)
for $c = 0.0, $a = 1
"""

from __future__ import annotations

from math import copysign, isfinite

from xdsl.ir import SSAValue

from stepwell.ir.dtypes import is_float
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.translate.rules import read_rules


def loses_negative_zero(
    value: SSAValue, zero: float, alpha: float | SSAValue, sign: int
) -> Refusal | None:
    """Refuse a sum with +0.0, which turns −0.0 into +0.0; the sign also depends on `alpha`.

    For a difference, torch negates `alpha`; the negative of an integer 0 has no sign.
    """
    if not is_float(element(value.type)):
        return None
    if isinstance(alpha, SSAValue):
        return Refusal("alpha is known only at run time")
    if not isfinite(alpha):
        return Refusal(f"alpha is {alpha}, and 0 times alpha is NaN")
    added = copysign(1.0, float(zero)) * copysign(1.0, float(sign * alpha))
    return Refusal("−0.0 + 0.0 is 0.0, not −0.0") if added > 0 else None


RULES = read_rules(__doc__, globals())
