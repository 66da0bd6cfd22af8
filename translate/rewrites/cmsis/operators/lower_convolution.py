"""Convolutions of every kind become CMSIS-NN's, in NHWC with explicit layout changes around them.

`conv1d`, `conv2d` and `convolution`: strided, dilated, grouped, depthwise, "same" padding. The
layout changes are `cmsis.transpose`; `assign-layouts` then moves them to where the least is copied,
so that the model does not have to be traced channels-last. What "same" padding adds on one side
only becomes a `cmsis.pad` with the zero point.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x3x3xi8>
    %wt = quant.scast %w : tensor<3x2x3x3xi8>
        to tensor<3x2x3x3x!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>>
    %xr = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %wr = quant.dcast %wt : tensor<3x2x3x3x!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>>
        to tensor<3x2x3x3xf32>
    %y = aten.conv2d.default(%xr, %wr)
        : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x2x2xf32>
    %q = quant.qcast %y : tensor<1x3x2x2xf32> to tensor<1x3x2x2x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %w = stepwell.weight <"w#cmsis.permute"> "constant" : tensor<3x3x3x2xi8>
    %xn = cmsis.transpose(%x) {perm = array<i64: 0, 2, 3, 1>}
        : (tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>
    %wt = quant.scast %w : tensor<3x3x3x2xi8>
        to tensor<3x3x3x2x!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>>
    %y = cmsis.quantized_conv2d_nhwc(%xn, %wt) {stride = array<i64: 1, 1>,
        padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, input_offset = -3 : i64,
        output_offset = -1 : i64,
        requantize_multipliers = array<i32: 1073741824, 1073741824, 1073741824>,
        requantize_shifts = array<i32: -3, -2, -1>, activation_min = -128 : i64,
        activation_max = 127 : i64, scratch = 0 : i64}
        : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>,
           tensor<3x3x3x2x!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>>)
        -> tensor<1x2x2x3x!quant.uniform<i8:f32, 2.0:-1>>
    %q = cmsis.transpose(%y) {perm = array<i64: 0, 3, 1, 2>}
        : (tensor<1x2x2x3x!quant.uniform<i8:f32, 2.0:-1>>)
        -> tensor<1x3x2x2x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import (
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2dNhwc,
)
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.quantised.recognise import (
    deliver,
    distinct,
    typed_weight,
)
from stepwell.translate.rewrites.cmsis.operators.convolution import (
    CONVOLUTIONS,
    Geometry,
    geometry,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import Layer, convolution_layer
from stepwell.translate.rewrites.cmsis.placing.reshape import padded, reshaped, to_nchw, to_nhwc


@dataclass(frozen=True)
class Convolution:
    """A convolution whose operands, weight and every use are quantised."""

    layer: Layer
    geometry: Geometry

    @property
    def channels(self) -> int:
        """Output channels."""
        return self.geometry.weight_shape[0]


@dataclass(frozen=True)
class LowerConvolution(Rewrite[Convolution]):
    """q(conv(dq(x), dq(w), b)) → cmsis."""

    name: ClassVar[str] = "lower-convolution"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = CONVOLUTIONS
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point requantisation, in units")

    def match(self, op: SchemaOp, program: Program) -> Convolution | Refusal | None:
        """Operands and uses are int8, the weight and bias constant, no sum can overflow."""
        found = geometry(op)
        if found is None or isinstance(found, Refusal):
            return found
        layer = convolution_layer(op, 0, found.weight_shape[0])
        if isinstance(layer, Refusal):
            return layer
        rows = program.weights.get(layer.weight.key).reshape(found.weight_shape[0], -1)
        padded = any(cast("tuple[int, ...]", found.padding))
        return layer.overflow(rows, program, padded) or Convolution(layer, found)

    def build(self, match: Convolution, rw: Rewriter) -> None:
        """NHWC input, one op for each distinct quantisation of the result, NCHW back."""
        image = _image(match, rw)
        bias = _bias(match, rw)
        weight = _weight(match, rw)
        for use, group in distinct(match.layer.uses):
            fields: dict[str, Any] = {
                "stride": match.geometry.stride,
                "padding": match.geometry.padding,
                "dilation": match.geometry.dilation,
                **match.layer.requantisation(use),
                "scratch": 0,
            }
            n, c, h, w = match.geometry.output_shape
            result = tensor((n, h, w, c), element(use.type))
            if match.geometry.is_depthwise:
                fields["depth_multiplier"] = match.channels // match.geometry.input_shape[1]
                made = QuantizedDepthwiseConv2dNhwc.make(
                    image, weight, bias, result=result, **fields
                )
            else:
                made = QuantizedConv2dNhwc.make(image, weight, bias, result=result, **fields)
            back = to_nchw(rw, rw.insert(made).results[0])
            deliver(rw, group, reshaped(rw, back, dims(use.type)))


def _image(match: Convolution, rw: Rewriter) -> SSAValue:
    """The input as NHWC, with the excess of uneven padding written out."""
    shape = match.geometry.input_shape
    image = to_nhwc(rw, reshaped(rw, match.layer.input.value, shape))
    before, after = match.geometry.excess
    if not any((*before, *after)):
        return image
    cell = match.layer.input.held.zero_point
    return padded(rw, image, (0, *before, 0), (0, *after, 0), cell)


def _weight(match: Convolution, rw: Rewriter) -> SSAValue:
    """OIHW → OHWI, or 1HWO for a depthwise convolution."""
    key = match.layer.weight.key
    shape = match.geometry.weight_shape
    if tuple(dims(rw.weights.type_of(key))) != shape:
        key = rw.weights.derive("cmsis.reshape", [key], shape=list(shape))
    order = (1, 2, 3, 0) if match.geometry.is_depthwise else (0, 2, 3, 1)
    key = rw.weights.derive("cmsis.permute", [key], permutation=list(order))
    blocks = tuple((order.index(axis), block) for axis, block in match.layer.weight.held.blocks)
    held = UniformQuantizedType(replace(match.layer.weight.held, blocks=blocks))
    return typed_weight(rw, key, tensor([shape[axis] for axis in order], held))


def _bias(match: Convolution, rw: Rewriter) -> SSAValue | None:
    key = match.layer.bias_key(match.channels, rw.program)
    if key is not None:
        return rw.weight(key)
    if match.geometry.groups == 1:
        return None
    # CMSIS-NN's grouped kernels offset the bias for each group, and so need one.
    return rw.constant(torch.zeros(match.channels, dtype=torch.int32), "zero_bias")
