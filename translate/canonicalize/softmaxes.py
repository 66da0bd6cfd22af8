"""Canonicalize softmax: `_softmax`, `_log_softmax` on an axis from the front, cast first.

rule softmax-along-axis
    Without a dtype, or with the one that the tensor has.
Before:
    %y = aten.$form.int(%x, $d, $?t) : (tensor<$*S x $E>) -> …
After:
    %y = aten._$form.default(%x, from_front(%x, $d), false)
where keeps_element($t, $E)
for each $form of softmax, log_softmax
for $d = -1, $t = none

rule cast-before-softmax
    With a dtype, the cast comes first.
Before:
    %y = aten.$form.int(%x, $d, $?t) : (tensor<$*S x $E>) -> …
After:
    %c = aten._to_copy.default(%x, dtype=$t) : … -> tensor<$*S x $t>
    %y = aten._$form.default(%c, from_front(%x, $d), false)
where not keeps_element($t, $E)
for each $form of softmax, log_softmax
for $d = 1, $t = f64

rule softmax-axis-from-front
    An axis that is counted from the back.
Before:
    %y = aten._$form.default(%x, $d, $?h)
After:
    %y = aten._$form.default(%x, from_front(%x, $d), false)
where not is_true($h) else "half_to_float casts within the softmax, which only CUDA does"
where is_negative($d) for termination
for each $form of softmax, log_softmax
for $d = -1, $h = false
not for $h = true, %x = "tensor<2x3xf16>"
"""

from __future__ import annotations

from xdsl.ir import Attribute

from stepwell.translate.rules import read_rules


def keeps_element(wanted: Attribute | None, attribute: Attribute) -> bool:
    """No element type is requested, or the operand has it already."""
    return wanted is None or wanted == attribute


RULES = read_rules(__doc__, globals())
