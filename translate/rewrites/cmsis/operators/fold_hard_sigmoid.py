"""Fusion: a hard sigmoid after a layer becomes the layer divided by six, plus a half, clamped.

hardsigmoid(y) = clamp(y/6 + 1/2, 0, 1): the scales of the weight are divided, the bias is shifted,
and the clamp becomes the kernel's range. ExecuTorch's quantizer leaves a squeeze-excite block in
this form, with one quantization after both ops.

rule fold-hard-sigmoid
    `hardsigmoid(layer(x, w, b))` to `clamp(layer(x, w/6, b/6 + 1/2), 0, 1)`.
Before:
    %l = $layer of LAYERS(%x, …)
    %y = aten.hardsigmoid.default(%l)
After:
    %w = over_six($constants)
    %b = half_more($constants)
    %g = $layer(%x, …, weight=%w, bias=%b)
    %y = aten.clamp.default(%g, 0.0, 1.0)
where reads_once(%l) for cost
unless has_other_rows(%l)
with $constants = quantized_constants(%l, %y)
bound of roundings: "the sixth is taken of scales, not of sums"
for %v = weight : tensor<3 x 4 x i8>
for %t = quant.scast(%v) : (…) -> $W
for %u = quant.dcast(%t) : (…) -> tensor<3 x 4 x f32>
for %x = quant.dcast(%i) : (…) -> tensor<2 x 4 x f32>
for %q = quant.qcast(%y) : (…) -> $Q
for $layer = "aten.linear.default", %weight = %u
for %i = "tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>", $W = "tensor<3x4x!quant.uniform<i8:f32, 0.75>>"
for $Q = "tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>"
not for $layer = "aten.convolution.default", $transposed = true, $stride = [1], $padding = [0], $groups = 1,
    $dilation = [1], $output_padding = [0], %i = "tensor<2x4x5x!quant.uniform<i8:f32, 0.5:3>>"; %v = weight : tensor<4 x 3 x 1 x i8>;
    %u = quant.dcast(%t) : (…) -> tensor<4 x 3 x 1 x f32>; $W = "tensor<4x3x1x!quant.uniform<i8:f32, 0.75>>";
    %x = quant.dcast(%i) : (…) -> tensor<2 x 4 x 5 x f32>; $Q = "tensor<2x3x5x!quant.uniform<i8:f32, 0.00390625:-128>>"
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import AnyTensor, dims, tensor, with_element
from stepwell.translate.quantized.recognize import (
    Bias,
    StoredWeight,
    activation,
    bias_operand,
    quantized_uses,
    stored_weight,
    typed_weight,
)
from stepwell.translate.rules import read_rules

LAYERS = (
    aten.LinearDefault,
    aten.Conv1dDefault,
    aten.Conv2dDefault,
    aten.ConvolutionDefault,
)
"""Layers whose outputs are the rows of their weight."""

Constants = tuple[StoredWeight, Bias | None]
"""The operands and attributes of an integer layer."""


def has_other_rows(value: SSAValue) -> Refusal | None:
    """Refuse a transposed convolution, whose outputs are not rows of its weight."""
    layer = cast(SchemaOp, value.owner)
    if isinstance(layer, aten.ConvolutionDefault) and layer.arg("transposed"):
        return Refusal("the outputs of a transposed convolution are not rows of its weight")
    return None


def quantized_constants(value: SSAValue, gate: SSAValue) -> Constants | Refusal:
    """Return the layer's quantized weight and bias; refuse unless its input and the hard sigmoid's
    result are quantized too.
    """
    layer = cast(SchemaOp, value.owner)
    found = activation(layer.operands[0])
    weight, bias = stored_weight(layer.operand("weight")), bias_operand(layer.operand("bias"))
    for part in (found, weight, bias, quantized_uses(gate)):
        if isinstance(part, Refusal):
            return part
    return cast(StoredWeight, weight), cast("Bias | None", bias)


def over_six(rw: Rewriter, constants: Constants) -> SSAValue:
    """Return the weight with its scales divided by six."""
    key, held = constants[0].key, constants[0].held
    sixth = UniformQuantizedType(replace(held, scales=[scale / 6 for scale in held.scales]))
    typed = typed_weight(rw, key, tensor(dims(rw.weights.type_of(key)), sixth))
    real = with_element(cast(AnyTensor, typed.type), held.expressed)
    return rw.insert(DequantizeCast(typed, real)).results[0]


def half_more(rw: Rewriter, constants: Constants) -> SSAValue:
    """Compute `b/6 + 1/2` as float32."""
    weight, bias = constants
    channels = number_of(dims(rw.weights.type_of(weight.key))[0])
    return rw.constant(_moved(bias, channels, rw.program), "half")


def _moved(bias: Bias | None, channels: int, program: Program) -> torch.Tensor:
    """Return `b/6 + 1/2` as float32."""
    if bias is None:
        return torch.full((channels,), 0.5)
    real = program.weights.get(bias.key).double()
    if bias.unit is not None:
        real = real * torch.tensor(bias.unit, dtype=torch.float64)
    return (real / 6 + 0.5).float()


(FoldHardSigmoid,) = RULES = read_rules(__doc__, globals())
