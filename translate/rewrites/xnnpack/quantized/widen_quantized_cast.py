"""Legalization: casts between halves and integers become float32 casts and conversions.

Neither XNNPACK nor ExecuTorch quantizes halves. PyTorch widens them first, and rounds the float32
product of a dequantized value, so this rewrite changes no bit. Types change through the stored
integers.

rule widen-quantized-cast
    Halves become integers.
Before:
    %y = quant.qcast(%x) : (tensor<$*S x $H>) -> tensor<$*S x $Q>
After:
    %w = aten._to_copy.default(%x, dtype=f32)
    %a = quant.qcast(%w) : … -> tensor<$*S x of_singles($Q)>
    %b = quant.scast(%a) : … -> tensor<$*S x storage($Q)>
    %y = quant.scast(%b)
where is_half($H) for termination
for $S = [4], $H = f16, $Q = "!quant.uniform<i8:f16, 0.5:3>"
not for $S = [30], $H = f64, $Q = "!quant.uniform<i8:f64, 0.2:3>"

rule widen-dequantized-cast
    Integers become halves.
Before:
    %y = quant.dcast(%q) : (tensor<$*S x $Q>) -> tensor<$*S x $H>
After:
    %b = quant.scast(%q) : … -> tensor<$*S x storage($Q)>
    %a = quant.scast(%b) : … -> tensor<$*S x of_singles($Q)>
    %f = quant.dcast(%a) : … -> tensor<$*S x f32>
    %y = aten._to_copy.default(%f, dtype=$H)
where is_half($H) for termination
for $S = [4], $H = f16, $Q = "!quant.uniform<i8:f16, 0.5:3>"
not for $S = [30], $H = f64, $Q = "!quant.uniform<i8:f64, 0.2:3>"
"""

from __future__ import annotations

from xdsl.ir import Attribute

from stepwell.dialects.quant import UniformQuantizedType
from stepwell.ir.dtypes import bf16, f16
from stepwell.translate.rewrites.xnnpack.quantized import quantized
from stepwell.translate.rules import read_rules


def is_half(attribute: Attribute) -> bool:
    """Whether the type is float16 or bfloat16."""
    return attribute in (f16, bf16)


def of_singles(quantized_type: UniformQuantizedType) -> UniformQuantizedType:
    """Return the same quantized type with float32 as its expressed type."""
    return UniformQuantizedType(quantized.of_singles(quantized_type.data))


RULES = read_rules(__doc__, globals())
