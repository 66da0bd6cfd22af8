"""Rematerialization: rescale int8 values separately for each reader, not once for all of them.

Vela fuses a RESCALE with the ADD, MUL or REDUCE_SUM that is its only reader into one int8 operator.
A RESCALE with several readers produces int32, and its readers run on int32. An attention of
ExecuTorch's quantized encoder (the sum of exponentials and the product with its reciprocal) took
twelve times the cycles on a U85.

rule rescale-for-each-term
    One operand of a sum, a difference or a product.
Before:
    %r = tosa.rescale(%x, %m, %s, %z, %o, …) : (tensor<$*S x $I>, …) -> tensor<$*S x i32>
    %y = $op of TERMS($left, $right, …)
After:
    %n = tosa.rescale(%x, …) : … -> tensor<$*S x i32>
    %y = $op($new_left, $new_right, …)
where are_two(%r, %t) for cost
where is_read_beside(%r, %y) for termination
for each $left, $right, $new_left, $new_right, $I of (%r, %t, %n, %t, i8), (%t, %r, %t, %n, i8),
    (%r, %t, %n, %t, i16), (%t, %r, %t, %n, i16)
for %w = tosa.reverse(%r, axis=0) : (…) -> tensor<$*S x i32>
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x $I>
for %o = weight : tensor<1 x i32>
for %t = "tensor<2x8xi32>", %s = "s#ones", %z = "z#zeros", %o = "o#zeros", $S = [2, 8]
for $op = "tosa.add", $per_channel = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
not for %t = %r

rule rescale-for-each-square
    Both operands: one copy serves them.
Before:
    %r = tosa.rescale(%x, %m, %s, %z, %o, …) : (tensor<$*S x $I>, …) -> tensor<$*S x i32>
    %y = $op of TERMS(%r, %r, …)
After:
    %n = tosa.rescale(%x, …) : … -> tensor<$*S x i32>
    %y = $op(%n, %n, …)
where is_read_beside(%r, %y) for termination
for each $I of i8, i16
for %w = tosa.reverse(%r, axis=0) : (…) -> tensor<$*S x i32>
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x $I>
for %o = weight : tensor<1 x i32>
for %s = "s#ones", %z = "z#zeros", %o = "o#zeros", $S = [2, 8]
for $op = "tosa.add", $per_channel = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"

rule rescale-for-each-sum
    What a REDUCE_SUM adds up, or an extremum is taken of.
Before:
    %r = tosa.rescale(%x, %m, %s, %z, %o, …) : (tensor<$*S x $I>, …) -> tensor<$*S x i32>
    %y = $op of REDUCTIONS(%r, …)
After:
    %n = tosa.rescale(%x, …) : … -> tensor<$*S x i32>
    %y = $op(%n, …)
where is_read_beside(%r, %y) for termination
for each $I of i8, i16
for %w = tosa.reverse(%r, axis=0) : (…) -> tensor<$*S x i32>
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x $I>
for %o = weight : tensor<1 x i32>
for %s = "s#ones", %z = "z#zeros", %o = "o#zeros", $S = [2, 8]
for $op = "tosa.reduce_sum", $axis = 1, $per_channel = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.translate.rewrites.ethosu import rescale_constant
from stepwell.translate.rules import read_rules

REDUCTIONS = (t.ReduceSumOp, t.ReduceMaxOp, t.ReduceMinOp)


def are_two(one: SSAValue, other: SSAValue) -> bool:
    """Whether the two values are different."""
    return one is not other


def is_read_beside(value: SSAValue, result: SSAValue) -> bool:
    """Whether a value has a second reader."""
    return any(use.operation is not result.owner for use in value.uses)


RULES = read_rules(__doc__, vars(rescale_constant) | globals())
