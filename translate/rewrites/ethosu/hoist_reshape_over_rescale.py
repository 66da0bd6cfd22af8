"""Hoisting: reshape int8 values before a RESCALE, not the int32 values after it.

Vela fuses RESCALE, ADD and RESCALE into one int8 operator. With a RESHAPE between them, the ADD
runs on int32.

rule hoist-reshape-over-rescale
    Reshape, then rescale, where one factor is for all elements.
Before:
    %m = weight : tensor<$M x i32>
    %s = weight : tensor<$N x i8>
    %z = weight : tensor<$K x i8>
    %o = weight : tensor<$L x i32>
    %r = tosa.rescale(%x, %m, %s, %z, %o, …,
        per_channel=$each) : (tensor<$*S x i8>, …) -> tensor<$*S x i32>
    %y = tosa.reshape(%r, …)
After:
    %n = tosa.reshape(%x, …) : … -> tensor<*sizes_of(%y) x i8>
    %y = tosa.rescale(%n, …)
where not is_true($each) else "its last axis has a factor an element"
for $S = [4, 6], $shape = [2, 12], $M = 1, $N = 1, $K = 1, $L = 1, $each = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
for %m = "m", %s = "s#ones", %z = "z", %o = "o#zeros"
not for $each = true, $M = 6, $N = 6
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())
