"""Materialize a broadcast int8 constant in flash in its full shape.

By Vela's estimate a broadcast constant is fetched again and again: scale and shift of a group norm
of 90 pixels in eight channels took 92 160 of a network's 102 206 cycles on a U55-128. In its full
shape the constant is fetched sequentially (11 576 cycles), and takes that many bytes of flash.

rule spread-constant
    As many bytes as the operator gives, and the same RESCALE of them.
Before:
    %c = weight : tensor<$*C x i8>
    %r = tosa.rescale(%c, %m, %s, %z, %o, …) : (…) -> tensor<$*C x i32>
    %y = $op of TERMS($left, $right, …) : (…) -> tensor<$*S x i32>
After:
    %b = weight tosa_spread(%c, shape=$whole)
    %n = tosa.rescale(%b, …) : … -> tensor<$*S x i32>
    %y = $op($new_left, $new_right, …)
with $whole = spread_sizes(%c, %y)
for each $left, $right, $new_left, $new_right of (%x, %r, %x, %n), (%r, %x, %n, %x)
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x i8>
for %o = weight : tensor<1 x i32>
for %x = "tensor<1x2x4xi32>", $S = [1, 2, 4], $C = [1, 1, 4], $op = "tosa.add", $per_channel = false
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
for %s = "s#ones", %z = "z", %o = "o#zeros", $scale32 = true
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import is_static
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.ethosu import rescale_constant
from stepwell.translate.rewrites.tosa.operators.building import shape_of
from stepwell.translate.rules import read_rules

MOST = 16 * 1024
"""The most bytes of flash that a constant may take."""


def spread_sizes(constant: SSAValue, result: SSAValue) -> list[int] | Refusal | None:
    """Return the sizes of a result that broadcasts several bytes, if its constant fits in flash."""
    if not is_static(result.type):
        return None
    own, whole = shape_of(constant), [int(size) for size in shape_of(result)]
    if prod(own) == 1 or [*own] == whole:
        return None
    if prod(whole) > MOST:
        return Refusal(f"the broadcast constant would take {prod(whole)} bytes of flash")
    return whole


@recipe("tosa_spread")
def tosa_spread(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Broadcast a constant to a shape of the same rank."""
    return weight.expand(*shape).contiguous()


(SpreadConstant,) = RULES = read_rules(__doc__, vars(rescale_constant) | globals())
