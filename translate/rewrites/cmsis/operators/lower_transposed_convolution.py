"""Transposed convolutions become `cmsis.quantized_transpose_conv2d_nhwc`.

The kernel has no groups, no dilation, and leaves what `output_padding` adds unwritten; those are
refused with the reason. Weights are IOHW in torch and OHWI in CMSIS-NN.

`arm_transpose_conv_s8` before July 2026 writes wrong rows where the padding of the height is not a
multiple of its stride (CMSIS-NN #230), and its scratch is sized too small where the stride of the
width exceeds the other's and the kernel (#243): the first is lowered without padding and cropped,
which is right in every version, the second refused.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<2x3x2x2xi8>
    %wt = quant.scast %w : tensor<2x3x2x2xi8> to tensor<2x3x2x2x!quant.uniform<i8:f32:1,
        {0.25, 0.5, 1.0}>>
    %a = quant.dcast %x : tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x3x3xf32>
    %b = quant.dcast %wt : tensor<2x3x2x2x!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0}>>
        to tensor<2x3x2x2xf32>
    %y = aten.conv_transpose2d.input(%a, %b, stride=[2, 2]) : (tensor<1x2x3x3xf32>,
        tensor<2x3x2x2xf32>) -> tensor<1x3x6x6xf32>
    %q = quant.qcast %y : tensor<1x3x6x6xf32> to tensor<1x3x6x6x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %v0 = stepwell.weight <"w#cmsis.permute"> "constant" : tensor<3x2x2x2xi8>
    %v1 = cmsis.transpose(%x) {perm = array<i64: 0, 2, 3, 1>}
        : (tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:3>>
    %v2 = quant.scast %v0 : tensor<3x2x2x2xi8> to tensor<3x2x2x2x!quant.uniform<i8:f32:0,
        {0.25, 0.5, 1.0}>>
    %v3 = cmsis.quantized_transpose_conv2d_nhwc(%v1, %v2) {stride = array<i64: 2, 2>,
        padding = array<i64: 0, 0>, output_padding = array<i64: 0, 0>,
        dilation = array<i64: 1, 1>, input_offset = -3 : i64, output_offset = -1 : i64,
        requantize_multipliers = array<i32: 1073741824, 1073741824, 1073741824>,
        requantize_shifts = array<i32: -3, -2, -1>, activation_min = -128 : i64,
        activation_max = 127 : i64, scratch = 0 : i64, output_scratch = 0 : i64}
        : (tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:3>>,
        tensor<3x2x2x2x!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>>)
        -> tensor<1x6x6x3x!quant.uniform<i8:f32, 2.0:-1>>
    %q = cmsis.transpose(%v3) {perm = array<i64: 0, 3, 1, 2>}
        : (tensor<1x6x6x3x!quant.uniform<i8:f32, 2.0:-1>>)
        -> tensor<1x3x6x6x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import QuantizedTransposeConv2dNhwc
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.quantised.recognise import (
    deliver,
    distinct,
    typed_weight,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import Layer, convolution_layer, pair
from stepwell.translate.rewrites.cmsis.placing.reshape import sliced, to_nchw, to_nhwc

CONV_TRANSPOSE = op_class("aten.conv_transpose2d.input")
CONVOLUTION = op_class("aten.convolution.default")


@dataclass(frozen=True)
class LowerTransposedConvolution(Rewrite[Layer]):
    """q(conv_transpose2d(dq(x), dq(w), b)) → cmsis."""

    name: ClassVar[str] = "lower-transposed-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (CONV_TRANSPOSE, CONVOLUTION)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point requantisation, in units")

    def match(self, op: SchemaOp, program: Program) -> Layer | Refusal | None:
        """The kernel's limits, then operands and uses in int8."""
        if op.name == "aten.convolution.default" and not op.arg("transposed"):
            return None
        if not is_static(op.results[0].type) or len(dims(op.results[0].type)) != 4:
            return Refusal("the kernel takes images of a shape known ahead of time")
        if op.arg("groups") != 1:
            return Refusal(f"groups is {op.arg('groups')}; the kernel has none")
        if pair(op.arg("dilation")) != (1, 1):
            return Refusal(f"dilation is {op.arg('dilation')}; the kernel has none")
        if any(pair(op.arg("output_padding"))):
            return Refusal("the kernel leaves the cells that output_padding adds unwritten")
        down, across = pair(op.arg("stride"))
        if across > max(down, cast(int, dims(op.operands[1].type)[3])):
            return Refusal(
                f"strides are {down} and {across}: CMSIS-NN sizes the scratch of such a kernel "
                "too small (#243)"
            )
        layer = convolution_layer(op, 1, cast(int, dims(op.results[0].type)[1]))
        if isinstance(layer, Refusal):
            return layer
        weight = program.weights.get(layer.weight.key)
        rows = weight.transpose(0, 1).reshape(weight.shape[1], -1)
        return layer.overflow(rows, program, padded=True) or layer

    def build(self, match: Layer, rw: Rewriter) -> None:
        """NHWC input, one op for each distinct quantisation of the result, NCHW back."""
        order = (1, 2, 3, 0)
        key = rw.weights.derive("cmsis.permute", [match.weight.key], permutation=list(order))
        blocks = tuple((order.index(axis), block) for axis, block in match.weight.held.blocks)
        held = UniformQuantizedType(replace(match.weight.held, blocks=blocks))
        image = to_nhwc(rw, match.input.value)
        weight = typed_weight(rw, key, tensor(dims(rw.weights.type_of(key)), held))
        channels = cast(int, dims(match.op.results[0].type)[1])
        bias = match.bias_key(channels, rw.program)
        stride, padding = pair(match.op.arg("stride")), pair(match.op.arg("padding"))
        cropped = padding[0] if padding[0] % stride[0] else 0
        for use, group in distinct(match.uses):
            n, c, h, w = cast("tuple[int, ...]", dims(use.type))
            made = QuantizedTransposeConv2dNhwc.make(
                image,
                weight,
                rw.weight(bias) if bias is not None else None,
                result=tensor((n, h + 2 * cropped, w, c), element(use.type)),
                stride=stride,
                padding=(padding[0] - cropped, padding[1]),
                output_padding=(0, 0),
                dilation=(1, 1),
                **match.requantisation(use),
                scratch=0,
                output_scratch=0,
            )
            value = rw.insert(made).results[0]
            if cropped:
                value = sliced(rw, value, 1, cropped, cropped + h)
            deliver(rw, group, to_nchw(rw, value))
