"""Fusion: a layer of bfloat16 rounds its own result.

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

from xdsl.ir import SSAValue

from stepwell.ir.dtypes import bf16
from stepwell.ir.types import element
from stepwell.translate.rules import read_rules


def multiplies_bfloats(value: SSAValue) -> bool:
    """Whether a layer's filter has elements of bfloat16."""
    return element(value.type) == bf16


(RoundInLayer,) = RULES = read_rules(__doc__, globals())
