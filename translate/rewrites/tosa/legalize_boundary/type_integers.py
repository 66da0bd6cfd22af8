"""Integers that are converted to floats become quantized values of scale 1 without a zero point.

rule type-integers
    A conversion from 8 or 16 bits is a dequantization of these very integers; what reads it lowers
    as after any other.
Before:
    %y = $cast of CONVERSIONS(%x, …) : (tensor<$*S x $I>) -> tensor<$*S x f32>
After:
    %t = quant.scast(%x) : … -> tensor<$*S x units($I)>
    %y = quant.dcast(%t)
where is_short($I)
for $cast = "aten.to.dtype", $dtype = f32, $S = [4], $I = i8

rule select-truths
    The two values that a truth can become are quantized ahead of time.
Before:
    %f = $cast of CONVERSIONS(%x, …) : (tensor<$*S x i1>) -> …
    %y = quant.qcast(%f) : … -> tensor<$*R x $Q>
After:
    %i = selected(%x, $Q)
    %y = quant.scast(%i)
where is_static(%x) for target else "the shape is symbolic"
where is_of_whole_tensors($Q) else "it is quantized to neither int8 nor int16 as a whole"
for $cast = "aten.to.dtype", $dtype = f32, $S = [4], $R = [4], $Q = "!quant.uniform<i8:f32, 0.5:3>"
not for $Q = "!quant.uniform<i8:f32:0, {0.5, 0.25, 0.5, 0.25}>"
"""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType
from stepwell.ir import types
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.lowerings.tosa.casts import CASTS
from stepwell.translate.lowerings.tosa.values import Value, where
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rules import read_rules

CONVERSIONS = tuple(map(op_class, CASTS))


def is_short(attribute: Attribute) -> bool:
    """Whether the value has an integer type that activations may have."""
    return attribute in WIDTHS.values()


def units(attribute: Attribute) -> Attribute:
    """Return the quantized type whose real values equal the stored integers."""
    (bits,) = (bits for bits, one in WIDTHS.items() if one == attribute)
    reach = 1 << (bits - 1)
    return UniformQuantizedType(Quantization(bits, True, -reach, reach - 1, f32, (1.0,), (0,)))


def is_static(value: SSAValue) -> bool:
    """Whether every size is static."""
    return types.is_static(value.type)


def is_of_whole_tensors(quantized_type: UniformQuantizedType) -> bool:
    """Whether the type has signed 8-bit or 16-bit integers with one scale."""
    numbers = quantized_type.data
    return numbers.is_per_tensor and numbers.signed and numbers.bits in WIDTHS


def selected(rw: Rewriter, truths: SSAValue, quantized_type: UniformQuantizedType) -> SSAValue:
    """Return the stored integers of 1 and 0, selected by a condition."""
    x = Value(truths, Builder(rw))
    codes = quantize(torch.tensor([1.0, 0.0]), quantized_type.data).tolist()
    integer = WIDTHS[quantized_type.data.bits]
    return where(x, *(Value(x.b.number(code, x.rank, integer), x.b) for code in codes)).ssa


RULES = read_rules(__doc__, globals())
