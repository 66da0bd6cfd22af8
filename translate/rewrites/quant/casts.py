"""Replace quantize and dequantize ops by casts between quantized types, and cancel casts.

PT2E's `quantized_decomposed.quantize_*` and torchao's `quantize_affine` carry scale, zero point and
range as arguments, and their result is a plain integer tensor without them. Here these parameters
move into the type; `quant.scast` returns the plain integers to the remaining readers. Parameters
must be constants and express a quantization; other rewrites handle dynamic ones.

rule type-quantize
    The integers under their type, and plain for those who use them.
Before:
    %y = $quantize of QUANTIZE(%x, …) : (tensor<$*S x $E>) -> …
After:
    %t = quant.qcast(%x) : … -> tensor<*sizes_of(%x) x $T>
    %y = quant.scast(%t)
with $T = type_of(%y, %y)
for $quantize = "quantized_decomposed.quantize_per_tensor.default", $S = [4]
for $scale = 0.5, $zero_point = 3, $quant_min = -128, $quant_max = 127, $dtype = i8

rule type-dequantize
    The integers are given their type first.
Before:
    %y = $dequantize of DEQUANTIZE(%x, …) : (tensor<$*S x $I>) -> …
After:
    %t = quant.scast(%x) : … -> tensor<*sizes_of(%x) x $T>
    %y = quant.dcast(%t)
with $T = type_of(%y, %x)
where expresses($T, %y) else "it gives other numbers than its type expresses"
for $dequantize = "quantized_decomposed.dequantize_per_tensor.default", $S = [4], $I = i8
for $scale = 0.5, $zero_point = 3, $quant_min = -128, $quant_max = 127, $dtype = i8

rule cancel-storage-casts
    From stored integers to their type and back, or the other way round. Another type in between is
    a requantization: it must be the very same.
Before:
    %r = quant.scast(%q) : ($T) -> $R
    %y = quant.scast(%r) : (…) -> $T
After:
    %y = itself(%q)
for $T = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>", $R = "tensor<4xi8>"

rule cancel-quantization
    Reals that stored integers stand for, quantized as those were.
Before:
    %x = quant.dcast(%q) : ($T) -> $R
    %y = quant.qcast(%x) : (…) -> $T
After:
    %y = itself(%q)
for $T = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>", $R = "tensor<4xf32>"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.quant.parameters import is_dynamic, quantization_of
from stepwell.translate.rules import read_rules

_OF = "quantized_decomposed"
QUANTIZE = tuple(
    op_class(name)
    for name in (
        f"{_OF}.quantize_per_tensor.default",
        f"{_OF}.quantize_per_tensor.tensor",
        f"{_OF}.quantize_per_channel.default",
        "torchao.quantize_affine.default",
    )
)
DEQUANTIZE = tuple(
    op_class(name)
    for name in (
        f"{_OF}.dequantize_per_tensor.default",
        f"{_OF}.dequantize_per_tensor.tensor",
        f"{_OF}.dequantize_per_channel.default",
        f"{_OF}.dequantize_per_channel_group.default",
        "torchao.dequantize_affine.default",
    )
)


def type_of(
    value: SSAValue, stored: SSAValue, program: Program
) -> UniformQuantizedType | Refusal | None:
    """Return the type of the integers that the op whose result is `value` produces or reads."""
    op = cast(SchemaOp, value.owner)
    return None if is_dynamic(op) else quantization_of(op, stored.type, program)


def expresses(attribute: Attribute, value: SSAValue) -> bool:
    """Whether a quantized type dequantizes to the element type of a tensor."""
    assert isinstance(attribute, UniformQuantizedType)
    return element(value.type) == attribute.data.expressed


RULES = read_rules(__doc__, globals())
