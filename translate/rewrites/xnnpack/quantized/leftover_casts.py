"""Lower casts that no kernel absorbed: constants at compile time, others to ExecuTorch's operators.

A dequantized constant becomes the floats that it represents, so that the layer that reads it still
runs in XNNPACK. XNNPACK has a node between float32 and all of int8 or uint8 with one scale. A cast
that it does not support becomes a `quantized_decomposed` op again, which ExecuTorch has kernels
for.

rule fold-dequantized-constant
    The floats that the stored integers of a weight stand for.
Before:
    %w = weight : tensor<$*S x $I>
    %t = quant.scast(%w) : (…) -> tensor<$*S x $Q>
    %y = quant.dcast(%t) : (…) -> tensor<$*S x $E>
After:
    %y = weight quant.reals(%w, stored_as($Q))
where expresses_single($Q) else "only float32 values are computed ahead of time"
for $S = [4], $I = i8, $Q = "!quant.uniform<i8:f32, 0.5>", $E = f32

rule lower-quantization
    The node that quantizes.
Before:
    %y = quant.qcast(%x) : (tensor<$*S x $E>) -> tensor<$*S x $Q>
After:
    %y = xnnpack.convert(%x)
unless not_static_int8(%y) for target
unless not_computed_range(%y)
bound by conversion_to($Q): "PT2E divides by the scale in float64"
for $S = [4], $E = f32, $Q = "!quant.uniform<i8:f32, 0.5:3>"
not for $S = [30], $Q = "!quant.uniform<i8<-4:4>:f32, 0.5:3>"

rule lower-dequantization
    The node that dequantizes.
Before:
    %y = quant.dcast(%x) : (tensor<$*S x $Q>) -> tensor<$*S x $E>
After:
    %y = xnnpack.convert(%x)
unless not_static_int8(%x)
for $S = [4], $E = f32, $Q = "!quant.uniform<i8:f32, 0.5:3>"

rule untype-quantization
    The operator that a quantization came from, and the type put on what it gives.
Before:
    %y = quant.qcast(%x) : (tensor<$*S x $E>) -> tensor<$*S x $Q>
After:
    %i = called_quantize(%x, $Q)
    %y = quant.scast(%i)
where has_an_operator($Q) else "ExecuTorch has no operator for groups of an axis"
where expresses_single($Q) else "ExecuTorch's operators quantize float32 values"
for $S = [4], $E = f32, $Q = "!quant.uniform<i16:f32, 0.5:3>"
not for $Q = "!quant.uniform<i8:f32:{0:2}, {0.5, 0.25}>"

rule untype-dequantization
    The plain integers, and the operator that a dequantization came from.
Before:
    %y = quant.dcast(%x) : (tensor<$*S x $Q>) -> tensor<$*S x $E>
After:
    %i = quant.scast(%x) : … -> tensor<$*S x storage($Q)>
    %y = called_dequantize(%i, $Q)
where has_an_operator($Q) else "ExecuTorch has no operator for groups of an axis"
where expresses_single($Q) else "ExecuTorch's operators quantize float32 values"
for $S = [4], $E = f32, $Q = "!quant.uniform<i16:f32, 0.5:3>"
not for $Q = "!quant.uniform<i8:f32:{0:2}, {0.5, 0.25}>"
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.quant import UniformQuantizedType
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.translate.quantized.untyped import dequantized, quantized
from stepwell.translate.rewrites.quant import constants
from stepwell.translate.rewrites.xnnpack.quantized import quantized as guards
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import conversion
from stepwell.translate.rules import read_rules


def has_an_operator(of: UniformQuantizedType) -> bool:
    """Whether `quantized_decomposed` has an operator for these scales: one, or one per index of an
    axis.
    """
    return not of.data.sub_channel


def conversion_to(of: UniformQuantizedType) -> Bound:
    """Return the bound on the difference between XNNPACK's quantization and PT2E's."""
    return conversion(of.data)


def called_quantize(rw: Rewriter, value: SSAValue, of: UniformQuantizedType) -> SSAValue:
    """Build the `quantized_decomposed` op that quantizes a real value to plain integers."""
    return quantized(rw, value, of.data)


def called_dequantize(rw: Rewriter, stored: SSAValue, of: UniformQuantizedType) -> SSAValue:
    """Build the `quantized_decomposed` op that dequantizes plain integers."""
    return dequantized(rw, stored, of.data)


RULES = read_rules(__doc__, vars(constants) | vars(guards) | globals())
FoldDequantizedConstant, LowerQuantization, LowerDequantization, *UNTYPE = RULES
CONVERT = (LowerQuantization, LowerDequantization)
