"""Legalization of bfloat16: casts, and layers that round their own result.

rule lower-bfloat-cast
    Casts between single precision and bfloat16; exact one way, rounded once the other.
Before:
    %y = aten.$cast(%x, dtype=$d, …) : (tensor<$*S x $E>) -> tensor<$*S x $F>
After:
    %y = xnnpack.convert(%x) : … -> tensor<$*S x $F>
where are_single_and_bfloat($E, $F) else "the cast is to or from another type"
unless is_a_constant(%x) for target
unless asks_for_another_layout(%y) for target
unless is_not_held(%x) for target
loses FLUSHED
for each $cast of _to_copy.default, to.dtype
for $E = f32, $F = bf16, $d = bf16
for $E = bf16, $F = f32, $d = f32
not for $memory_format = "torch.channels_last", $S = [2, 3, 4, 5]
not for $S = [1, 1, 1, 1, 1, 2, 3]

rule round-in-layer
    A result in f32 of a product of bfloat16s, which is rounded to bfloat16 afterwards.
Before:
    %a = xnnpack.fully_connected(%x, %w, …) : (…) -> tensor<$*A x f32>
    %y = xnnpack.convert(%a) : (…) -> tensor<$*A x bf16>
After:
    %y = xnnpack.fully_connected(%x, %w, …) : … -> tensor<$*A x bf16>
where multiplies_bfloats(%w) for target else "the layer multiplies numbers of another type"
where reads_once(%a) for cost else "the result is also read in f32"
bound of roundings: "a result next to the middle of two bfloat16s may round to either"
for %w = weight : tensor<3 x 4 x bf16>
for %x = "tensor<2x4xbf16>", $A = [2, 3]
not for %w = weight : tensor<3 x 4 x f32>; %x = "tensor<2x4xf32>"
"""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.declared import numerics
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.types import element
from stepwell.translate.rewrites.xnnpack.nodes import lower_elementwise
from stepwell.translate.rules import read_rules

FLUSHED = numerics.FLUSHED
asks_for_another_layout = lower_elementwise.asks_for_another_layout
is_a_constant, is_not_held = lower_elementwise.is_a_constant, lower_elementwise.is_not_held


def are_single_and_bfloat(one: Attribute, other: Attribute) -> bool:
    """Whether the types are f32 and bf16, in either order."""
    return (one, other) in ((bf16, f32), (f32, bf16))


def multiplies_bfloats(value: SSAValue) -> bool:
    """Whether a layer's filter has elements of bfloat16."""
    return element(value.type) == bf16


RULES = read_rules(__doc__, globals())
