"""Lowerings of quantized linear layers and convolutions: static int8, dynamic int8, weight-only.

A static layer reads and writes int8; it is fused with its casts only if the kernel supports input,
weight, bias and result. A dynamic layer computes the scales of its input at run time, one per row
(PT2E describes one scale for the whole tensor; steps of separate scales are no larger).
Convolutions are channels last; the scales' axis moves with the filter's axes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import Quantization
from stepwell.dialects.quant.numbers import from_tensor
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type, group_size, quantization_problem
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.ir.types import dims, element, with_element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.convolutions import (
    Convolution,
    fields_of,
    form_of,
    laid_out,
    needs_images,
)
from stepwell.translate.lowerings.xnnpack.integers import by_products, limits
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.quantized.layers import Layer, weighted
from stepwell.translate.quantized.recognize import (
    StoredWeight,
    Use,
    quantized_source,
    stored_constant,
)
from stepwell.translate.quantized.run_time import run_time_quantized
from stepwell.translate.rewrites.xnnpack.floats.singles import widened
from stepwell.translate.rewrites.xnnpack.nodes.guards import FLOATS, not_constant, not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc
from stepwell.translate.rewrites.xnnpack.nodes.windows import channels_last
from stepwell.translate.rewrites.xnnpack.quantized.quantized import (
    not_a_filter,
    of_singles,
    on_axis,
    per_channel,
    typed_bias,
    typed_constant,
)
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import (
    STATIC_LAYER,
    STORED_LAYER,
    stored_layer,
)

LAYER = """
    %w = stepwell.weight <"w"> "parameter" : tensor<{0}xi8>
    %t = quant.scast %w : tensor<{0}xi8> to tensor<{0}x!quant.uniform<i8:f32, 0.125>>
    %r = quant.dcast %t : tensor<{0}x!quant.uniform<i8:f32, 0.125>> to tensor<{0}xf32>
    %x = quant.dcast %q : tensor<{1}x!quant.uniform<i8:f32, 0.5:3>> to tensor<{1}xf32>
    %y = aten.{2} : (tensor<{1}xf32>, tensor<{0}xf32>) -> tensor<{3}xf32>
    %z = quant.qcast %y : tensor<{3}xf32> to tensor<{3}x!quant.uniform<i8:f32, 0.25>>
"""
STORED = """
    %w = stepwell.weight <"w"> "parameter" : tensor<{0}xi8>
    %t = quant.scast %w : tensor<{0}xi8> to tensor<{0}x!quant.uniform<i8:f32, 0.125>>
    %r = quant.dcast %t : tensor<{0}x!quant.uniform<i8:f32, 0.125>> to tensor<{0}xf32>
    %y = aten.{2} : (tensor<{1}xf32>, tensor<{0}xf32>) -> tensor<{3}xf32>
"""
MATRICES = ("3x4", "2x4", "linear.default(%x, %r)", "2x3")
IMAGES = (
    "3x2x1x1",
    "1x2x4x4",
    "convolution.default(%x, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
    "1x3x4x4",
)


@lowers(
    "aten.linear.default",
    to="xnnpack",
    quantized_operands=weighted,
    takes_empty=True,
    bound=STATIC_LAYER,
    error_bound=by_products,
    sample=LAYER.format(*MATRICES),
)
def quantized_linear(x: SSAValue, *, op: SchemaOp, layer: Layer, use: Use, b: Rewriter) -> SSAValue:
    """Lower to a fully connected node with int8 input and output."""
    _needs_matrices(op.operands[0], op)
    weight, fields = layer.weight, limits(use)
    filter_ = typed_constant(b, weight.key, weight.held)
    bias = typed_bias(b, layer)
    return node(b, xnnpack.FullyConnected, x, filter_, bias, result=use.type, **fields).ssa


def _needs_matrices(x: SSAValue, op: SchemaOp) -> None:
    if len(dims(x.type)) < 2 or len(dims(op.operands[1].type)) != 2:
        refuse("the input or the weight is a vector")


def _by_tokens(op: Any, value: RunTime) -> Bound:
    """Bound a layer with a quantized weight by `quantized_bounds.stored_layer`, from its input's
    largest scale (0 for floats).
    """
    found, weight = run_time_quantized(op.operands[0]), stored_constant(op.operands[1])
    assert weight is not None
    step = 0.0 if found is None else float(value(found.scale).max())
    return stored_layer(op, step, value, weight.held.sub_channel)


@lowers(
    "aten.linear.default",
    to="xnnpack",
    check="none",
    bound=STORED_LAYER,
    error_bound=_by_tokens,
    unless=lambda op: (
        stored_constant(op.operands[1]) is None or quantized_source(op.operands[0]) is not None
    ),
    name="lower-dynamic-linear",
    sample=STORED.format(*MATRICES),
)
def dynamic_linear(x: Value, *, op: SchemaOp, b: Rewriter) -> Value:
    """Lower linear(dq(q(x, scale of x)), dq(w), b) or linear(x, dq(w)), with a quantized weight."""
    weight, found = stored_constant(op.operands[1]), run_time_quantized(op.operands[0])
    assert weight is not None
    value = x.ssa if found is None else found.source
    bias = op.operand("bias")
    _needs_matrices(value, op)
    kept = weight.held if found is None else of_singles(weight.held)
    held = packable(kept, dims(op.operands[1].type))
    no_refusal(not_for_xnnpack(op))
    no_refusal(not_constant(bias, "bias"))
    if found is None and held.sub_channel:
        refuse("with float inputs XNNPACK has no kernel for groups of weights")
    if found is not None:
        value, bias = _in_singles(value, bias, b)
        value = node(b, xnnpack.Convert, value, element=DynamicInt8Type(1)).ssa
    elif bias is not None:
        bias = _in_units_of_the_weight(bias, held, b)
    filter_ = typed_constant(b, weight.key, held)
    made = with_element(op.results[0].type, f32)
    y = node(b, xnnpack.FullyConnected, value, filter_, bias, result=made)
    return y.cast(element(op.results[0].type))


def _in_singles(
    value: SSAValue, bias: SSAValue | None, b: Rewriter
) -> tuple[SSAValue, SSAValue | None]:
    """Return the input in float32, the only type of these kernels without half arithmetic."""
    if element(value.type) not in FLOATS:
        refuse("XNNPACK quantizes float32 and float16 values at run time")
    return widened(b, value), None if bias is None else widened(b, bias)


@lowers(
    "aten.convolution.default",
    to="xnnpack",
    quantized_operands=weighted,
    takes_empty=True,
    bound=STATIC_LAYER,
    error_bound=by_products,
    sample=LAYER.format(*IMAGES),
)
def quantized_convolution(
    x: SSAValue, *, op: SchemaOp, layer: Layer, use: Use, b: Rewriter
) -> SSAValue:
    """Lower to the channels-last int8 node between transposes."""
    needs_images(x, use.cast.result)
    _needs_one_group(op, layer.weight)
    form, fields = form_of(op, layer.weight.key), limits(use)
    image = to_nhwc(b, x)
    axis = on_axis(layer.weight.held, filter_axis(form))
    filter_ = typed_constant(b, laid_out(form, b.weights), axis)
    bias = typed_bias(b, layer)
    fields |= {"result": channels_last(use.type), **fields_of(form)}
    return to_nchw(b, node(b, form.node, image, filter_, bias, **fields).ssa, use.type)


@lowers(
    "aten.convolution.default",
    to="xnnpack",
    check="none",
    bound=STORED_LAYER,
    error_bound=_by_tokens,
    unless=lambda op: (
        stored_constant(op.operands[1]) is None or run_time_quantized(op.operands[0]) is None
    ),
    name="lower-dynamic-convolution",
    sample="""
        %w = stepwell.weight <"w#zeros"> "parameter" : tensor<3x2x1x1xi8>
        %t = quant.scast %w : tensor<3x2x1x1xi8> to tensor<3x2x1x1x!quant.uniform<i8:f32, 0.125>>
        %r = quant.dcast %t : tensor<3x2x1x1x!quant.uniform<i8:f32, 0.125>> to tensor<3x2x1x1xf32>
        %s, %p = quantized_decomposed.choose_qparams.tensor(%x, -128, 127, 1.0e-06, i8) : (tensor<1x2x4x4xf32>) -> (tensor<1xf64>, tensor<1xi64>)
        %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %p, -128, 127, i8) : (tensor<1x2x4x4xf32>, tensor<1xf64>, tensor<1xi64>) -> tensor<1x2x4x4xi8>
        %d = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %p, -128, 127, i8) : (tensor<1x2x4x4xi8>, tensor<1xf64>, tensor<1xi64>) -> tensor<1x2x4x4xf32>
        %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x2x4x4xf32>, tensor<3x2x1x1xf32>) -> tensor<1x3x4x4xf32>
    """,
)
def dynamic_convolution(x: Value, *, op: SchemaOp, b: Rewriter) -> Value:
    """Lower convolution(dq(q(x, scale of x)), dq(w), b) with dynamic scales and quantized filter."""
    weight, found = stored_constant(op.operands[1]), run_time_quantized(op.operands[0])
    assert weight is not None and found is not None
    if found.by_token:
        refuse("each row of the image has a separate scale; XNNPACK takes one for each image")
    source, result, bias = found.source, op.results[0], op.operand("bias")
    no_refusal(not_for_xnnpack(op))
    needs_images(source, result)
    weight = replace(weight, held=of_singles(weight.held))
    no_refusal(not_a_filter(weight, int(op.arg("transposed"))))
    _needs_one_group(op, weight)
    no_refusal(not_constant(bias, "bias"))
    form = form_of(op, weight.key)
    if form.node is xnnpack.DepthwiseConvolution2d:
        refuse("XNNPACK has no depthwise convolution with run-time scales")
    source, bias = _in_singles(source, bias, b)
    image = to_nhwc(b, source)
    outputs = dims(result.type)[1]
    assert isinstance(outputs, int)
    channel = per_channel(weight.held, 0, outputs)
    filter_ = typed_constant(b, laid_out(form, b.weights), channel)
    shared = shared_dimensions(form, filter_)
    value = node(b, xnnpack.Convert, image, element=DynamicInt8Type(shared)).ssa
    made = with_element(result.type, f32)
    fields = {"result": channels_last(made), **fields_of(form)}
    y = node(b, form.node, value, filter_, bias, **fields)
    return Value(to_nchw(b, y.ssa, made), b).cast(element(result.type))


def shared_dimensions(form: Convolution, stored: SSAValue) -> int:
    """Return how many dimensions of the input share a scale: one (the pixel) if XNNPACK sees rows.

    XNNPACK turns a pointwise convolution into a fully connected node (`Convolution2d`).
    """
    if form.node is not Convolution2d:
        return 3
    outputs, height, width, inputs = dims(stored.type)
    assert isinstance(outputs, int) and isinstance(inputs, int)
    is_pointwise = (
        (height, width) == (1, 1)
        and form.stride == (1, 1)
        and form.padding == (0, 0)
        and form.groups == 1
        and outputs + inputs > 2
    )
    return 1 if is_pointwise else 3


def _needs_one_group(op: SchemaOp, weight: StoredWeight) -> None:
    """Refuse different scales in groups: a transposed filter's output axis is that of one group."""
    if op.arg("transposed") and op.arg("groups") != 1 and not weight.held.is_per_tensor:
        refuse("a transposed convolution in groups shares each scale among the groups")


def filter_axis(form: Convolution) -> int:
    """Return the output axis of the node's filter."""
    return 3 if form.node is xnnpack.DepthwiseConvolution2d else 0


@recipe("bias_over_scales")
def bias_over_scales(bias: torch.Tensor, *, scales: list[float]) -> torch.Tensor:
    """Return a bias in units of each output's weight scale."""
    if bias.is_meta:
        return torch.empty_like(bias)
    return (bias.double() / torch.tensor(scales, dtype=torch.float64)).float()


def _in_units_of_the_weight(bias: SSAValue, quantization: Quantization, rw: Rewriter) -> SSAValue:
    """Rescale the bias: with float inputs, XNNPACK adds the bias to the sums before scaling
    them.
    """
    key = weight_key(bias)
    assert key is not None
    return rw.weight(rw.weights.derive("bias_over_scales", [key], scales=list(quantization.scales)))


def packable(quantization: Quantization, shape: tuple[object, ...]) -> Quantization:
    """Return a weight's quantization as XNNPACK packs it: 8 or 4 bits, per output or input group.

    XNNPACK stores the scales of groups as bfloat16; they are rounded here, where it is visible.
    """
    if not quantization.signed or quantization.bits != 8 or quantization.expressed != f32:
        refuse("XNNPACK's quantized weights are signed int8 or int4 of float32 values")
    if not quantization.is_symmetric:
        refuse("the weight has a zero point; XNNPACK's weights are symmetric")
    outputs, inputs = shape
    assert isinstance(outputs, int) and isinstance(inputs, int)
    if quantization.sub_channel:
        if group_size(quantization) is None:
            refuse("the weight's groups are not contiguous inputs of one output")
        if quantization.low < -8 or quantization.high > 7:
            refuse("XNNPACK has groups of 4-bit weights only")
        scales = from_tensor(quantization.scale_values().bfloat16(), float)
        narrow = replace(quantization, bits=4, low=-8, high=7, scales=scales)
        problem = quantization_problem(narrow, "qbint4")
        if problem is not None:
            refuse(problem)
        return narrow
    if quantization.axis not in (None, 0):
        refuse("the weight's scales lie on the axis of inputs")
    if quantization.low >= -8 and quantization.high <= 7 and inputs % 2 == 0:
        quantization = replace(quantization, bits=4)
    return per_channel(quantization, 0, outputs)


RULES = lowerings_of(__name__)
