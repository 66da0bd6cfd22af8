"""Canonicalization: remove an expand to the shape of its operand.

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

rule broadcast-term
    A sum and a product repeat what is shorter by themselves.
Before:
    %e = aten.expand.default(%z, …)
    %y = aten.$op.Tensor({%x, %e})
After:
    %y = aten.$op.Tensor(%x, %z)
where have_one_shape(%x, %y)
for each $op of add, mul
for %x = "tensor<2x3xf32>", %z = "tensor<1x3xf32>", $size = [2, 3]
not for %x = "tensor<1x3xf32>"

rule broadcast-mask
    So does what fills where a mask says: of a batch of any size it is one mask.
Before:
    %e = aten.expand.default(%m, …)
    %y = aten.masked_fill.Scalar(%x, %e, $v)
After:
    %y = aten.masked_fill.Scalar(%x, %m, $v)
where have_one_shape(%x, %y)
for %x = "tensor<2x3xf32>", %m = "tensor<1x3xi1>", $size = [2, 3], $v = 0.5
not for %x = "tensor<1x3xf32>"

rule broadcast-divisor
    So do a difference and a quotient what is taken off and what divides.
Before:
    %e = aten.expand.default(%z, …)
    %y = aten.$op.Tensor(%x, %e)
After:
    %y = aten.$op.Tensor(%x, %z)
where have_one_shape(%x, %y)
for each $op of sub, div
for %x = "tensor<2x3xf32>", %z = "tensor<1x3xf32>", $size = [2, 3]
not for %x = "tensor<1x3xf32>"

rule broadcast-divisor-as
    The same, repeated to the shape of a tensor: a vector by its length.
Before:
    %e = aten.expand_as.default(%z, %w)
    %y = aten.div.Tensor(%x, %e)
After:
    %y = aten.div.Tensor(%x, %z)
where have_one_shape(%x, %y)
for %x = "tensor<2x3xf32>", %z = "tensor<1x3xf32>", %w = "tensor<2x3xf32>"
not for %x = "tensor<1x3xf32>"
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.ir.types import dims
from stepwell.translate.rules import read_rules


def have_one_shape(one: SSAValue, other: SSAValue) -> bool:
    """Whether two values have the same sizes."""
    return dims(one.type) == dims(other.type)


RULES = read_rules(__doc__, globals())
