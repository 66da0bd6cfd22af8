"""Lowerings of convolutions, linear layers and products of two computed values.

Convolutions run in NHWC between explicit layout changes, `cmsis.transpose`. The pass
`assign-layouts` then moves the transposes so that little is copied; the model does not have to be
traced channels-last. One-sided padding of "same" becomes a `cmsis.pad` with the zero point. Linear
layers are written with a bias, which `fold-kernel-sum` converts for MVE builds.

`arm_transpose_conv_s8` before July 2026 writes wrong rows if the padding of the height is not a
multiple of its stride (CMSIS-NN #230); such a layer is lowered without padding and cropped, which
is correct in every version. The kernel's scratch is too small if the stride of the width exceeds
both the other stride and the kernel (#243); such a layer is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import offset_rows, requantize_overflows
from stepwell.dialects.cmsis.ops import (
    QuantizedBatchMatmul,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2dNhwc,
    QuantizedLinear,
    QuantizedTransposeConv2dNhwc,
)
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, is_static, tensor, with_element
from stepwell.translate.lowerings.cmsis.values import (
    bias_key,
    factor_of,
    multipliers,
    needs_sums,
    permuted_weight,
    requantization,
    written,
)
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.quantized.layers import Layer, Parts, weighted
from stepwell.translate.quantized.recognize import (
    Activation,
    StoredWeight,
    Use,
    activation,
    not_for_each_output,
    stored_weight,
    typed_weight,
)
from stepwell.translate.rewrites.cmsis.layout.reshape import (
    padded,
    reshaped,
    sliced,
    to_nchw,
    to_nhwc,
    transposed,
)
from stepwell.translate.rewrites.cmsis.operators.convolution import (
    Geometry,
    geometry,
    not_fixed,
    pair,
)
from stepwell.translate.rewrites.cmsis.operators.rescale import kernel_type, rescaled

OfUse = Callable[[Use], SSAValue]
LAYER = """
    %w = stepwell.weight <"w"> "parameter" : tensor<{0}xi8>
    %wt = quant.scast %w : tensor<{0}xi8> to tensor<{0}x!quant.uniform<i8:f32{1}>>
    %xr = quant.dcast %x : tensor<{2}x!quant.uniform<i8:f32, 0.5:3>> to tensor<{2}xf32>
    %wr = quant.dcast %wt : tensor<{0}x!quant.uniform<i8:f32{1}>> to tensor<{0}xf32>
    %y = aten.{3} : (tensor<{2}xf32>, tensor<{0}xf32>) -> tensor<{4}xf32>
    %q = quant.qcast %y : tensor<{4}xf32> to tensor<{4}x!quant.uniform<i8:f32, 2.0:-1>>
"""
SCALES = "{0.25, 0.5, 1.0}"
BY_CHANNEL = ("scales", "zero_points")


# -- convolutions ------------------------------------------------------------------------------


def _convolution(op: SchemaOp) -> Parts | Refusal | None:
    """Match a convolution of lines or images that is not transposed."""
    found = geometry(op)
    return weighted(op) if isinstance(found, Geometry) else found


@lowers(
    "aten.conv1d.default",
    "aten.conv1d.padding",
    "aten.conv2d.default",
    "aten.conv2d.padding",
    "aten.convolution.default",
    to="cmsis",
    quantized_operands=_convolution,
    sample=LAYER.format(
        "3x2x3x3", f":0, {SCALES}", "1x2x4x4", "conv2d.default(%xr, %wr)", "1x3x2x2"
    ),
)
def convolution(x: Activation, *, op: SchemaOp, layer: Layer, b: Rewriter) -> OfUse:
    """Lower a convolution with any stride, dilation, groups and padding to NHWC, and transpose
    back.
    """
    form = geometry(op)
    assert isinstance(form, Geometry)
    no_refusal(not_for_each_output(layer.weight, 0))
    channels = form.weight_shape[0]
    scales = {use: _for_each(layer, use, channels) for use in layer.uses}
    rows = b.weights.get(layer.weight.key).reshape(channels, -1)
    needs_sums(layer, rows, [*scales.values()], b.program, any(form.padding))
    image = _image(x, form, b)
    bias = bias_key(layer, channels, b.program)
    added = None if bias is None else b.weight(bias)
    if bias is None and form.groups != 1:
        # CMSIS-NN's grouped kernels offset the bias for each group, so they need one.
        added = b.constant(torch.zeros(channels, dtype=torch.int32), "zero_bias")
    weight = layer.weight
    if tuple(dims(b.weights.type_of(weight.key))) != form.weight_shape:
        key = b.weights.derive("cmsis.reshape", [weight.key], shape=list(form.weight_shape))
        weight = StoredWeight(key, weight.held)
    filter_ = permuted_weight(weight, (1, 2, 3, 0) if form.is_depthwise else (0, 2, 3, 1), b)

    def of_use(use: Use) -> SSAValue:
        fields: dict[str, Any] = {
            "stride": form.stride,
            "padding": form.padding,
            "dilation": form.dilation,
            **requantization(x.held, use, scales[use]),
            "scratch": 0,
        }
        n, c, h, w = form.output_shape
        node: Any = QuantizedConv2dNhwc
        if form.is_depthwise:
            node = QuantizedDepthwiseConv2dNhwc
            fields["depth_multiplier"] = channels // form.input_shape[1]
        result = tensor((n, h, w, c), element(use.type))
        made = written(node.make(image, filter_, added, result=result, **fields), b)
        return reshaped(b, to_nchw(b, made), dims(use.type))

    return of_use


def _for_each(layer: Layer, use: Use, channels: int) -> tuple[Any, ...]:
    """Return a multiplier for each channel."""
    found = multipliers(layer, use)
    return found * (channels if len(found) == 1 else 1)


def _image(x: Activation, form: Geometry, b: Rewriter) -> SSAValue:
    """Return the input as NHWC, with the additional padding of one side applied."""
    image = to_nhwc(b, reshaped(b, x.value, form.input_shape))
    before, after = form.excess
    if not any((*before, *after)):
        return image
    return padded(b, image, (0, *before, 0), (0, *after, 0), x.held.zero_point)


def _upwards(op: SchemaOp) -> Parts | Refusal | None:
    """Match a transposed convolution within the kernel's limits."""
    if op.name == "aten.convolution.default" and not op.arg("transposed"):
        return None
    rank = len(dims(op.results[0].type))
    if not is_static(op.results[0].type) or rank != len(dims(op.operands[1].type)) or rank > 4:
        return Refusal("the kernel takes batches of images of a shape known ahead of time")
    if rank == 4:
        down, across = pair(op.arg("stride"))
        if across > max(down, cast(int, dims(op.operands[1].type)[3])):
            return Refusal(
                f"strides are {down} and {across}: CMSIS-NN sizes the scratch of such a kernel "
                "too small (#243)"
            )
    return Parts(op.operands[:1], op.operands[1], op.operand("bias"), axis=1)


@lowers(
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.convolution.default",
    to="cmsis",
    quantized_operands=_upwards,
    takes_empty=True,
    sample=LAYER.format(
        "2x3x2x2",
        f":1, {SCALES}",
        "1x2x3x3",
        "conv_transpose2d.input(%xr, %wr, stride=[2, 2])",
        "1x3x6x6",
    ),
)
def transposed_convolution(x: Activation, *, op: SchemaOp, layer: Layer, b: Rewriter) -> OfUse:
    """Lower to NHWC with one op for each distinct quantization of the result, and transpose back.

    Features that the kernel lacks become zeros in the filter: between its cells for a dilation, for
    the inputs of other groups, and at the end for `output_padding`. If the kernel does not support
    the padding of an axis, the result is computed without padding and then cropped. A line is an
    image of width one.
    """
    no_refusal(not_for_each_output(layer.weight, 1))
    is_line, groups = len(dims(op.results[0].type)) == 3, cast(int, op.arg("groups"))
    stride, padding, dilation, more = (
        (pair(op.arg(name))[0], plain) if is_line else pair(op.arg(name))
        for name, plain in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    )
    given, made_shape = (
        cast("tuple[int, ...]", (*dims(value.type), 1) if is_line else dims(value.type))
        for value in (x.value, op.results[0])
    )
    weight = layer.weight
    if is_line:
        shape = [*dims(b.weights.type_of(weight.key)), 1]
        weight = replace(weight, key=b.weights.derive("cmsis.reshape", [weight.key], shape=shape))
    behind = tuple(max(0, most - side) for most, side in zip(more, padding, strict=True))
    if groups > 1 or dilation != (1, 1) or any(behind):
        fields: dict[str, Any] = {"groups": groups, "dilation": dilation, "behind": behind}
        key = b.weights.derive("cmsis.spread", [weight.key], **fields)
        weight = StoredWeight(key, weight.held)
        if weight.held.axis is not None and groups > 1:  # One scale per output of a group.
            count = len(weight.held.scales) * groups
            numbers = {name: [*getattr(weight.held, name)] * groups for name in BY_CHANNEL}
            weight = replace(weight, held=replace(weight.held, **numbers, grid=(count,)))
    layer = replace(layer, constant=weight)
    channels = made_shape[1]
    scales = {use: _for_each(layer, use, channels) for use in layer.uses}
    held = b.weights.get(weight.key)
    rows = held.transpose(0, 1).reshape(channels, -1)
    needs_sums(layer, rows, [*scales.values()], b.program, padded=True)
    image = to_nhwc(b, reshaped(b, x.value, given))
    filter_ = permuted_weight(weight, (1, 2, 3, 0), b)
    bias = bias_key(layer, channels, b.program)
    is_cropped = (
        bool(more[0]) or padding[0] % stride[0] != 0,
        bool(more[1]),
    )
    sides = [0 if crops else side for crops, side in zip(is_cropped, padding, strict=True)]
    whole = [
        (cells - 1) * step + kernel - 2 * side
        for cells, step, kernel, side in zip(given[2:], stride, held.shape[2:], sides, strict=True)
    ]

    def of_use(use: Use) -> SSAValue:
        n, c, *wanted = made_shape
        made = QuantizedTransposeConv2dNhwc.make(
            image,
            filter_,
            None if bias is None else b.weight(bias),
            result=tensor((n, *whole, c), element(use.type)),
            stride=stride,
            padding=tuple(sides),
            output_padding=(0, 0),
            dilation=(1, 1),
            **requantization(x.held, use, scales[use]),
            scratch=0,
            output_scratch=0,
        )
        value = written(made, b)
        for axis, crops in enumerate(is_cropped):
            if crops:
                start = padding[axis]
                value = sliced(b, value, 1 + axis, start, start + wanted[axis])
        return reshaped(b, to_nchw(b, value), dims(use.type))

    return of_use


# -- products ----------------------------------------------------------------------------------


def _linear(op: SchemaOp) -> Parts | Refusal | None:
    """Match (input, weight, bias) of a linear layer, with the outputs along an axis of the
    weight.
    """
    if op.name == "aten.linear.default":
        if len(dims(op.operands[1].type)) != 2:
            return Refusal("the weight is one row, so that there is no axis of outputs")
        parts = weighted(op)
    elif op.name == "aten.addmm.default":
        if op.arg("beta") != 1 or op.arg("alpha") != 1:
            return Refusal(f"beta is {op.arg('beta')} and alpha {op.arg('alpha')}; both must be 1")
        if len(dims(op.operands[0].type)) != 1:
            return Refusal("the bias is not one number per output")
        parts = Parts(op.operands[1:2], op.operands[2], op.operands[0], axis=1)
    else:
        if len(dims(op.operands[1].type)) != 2:
            return None
        parts = Parts(op.operands[:1], op.operands[1], axis=1)
    assert parts.weight is not None
    is_batched = not isinstance(activation(parts.weight), Refusal)
    if is_batched and isinstance(stored_weight(parts.weight), Refusal):
        return None  # The right side is quantized at run time, which `matmul` lowers.
    return parts


@lowers(
    "aten.linear.default",
    "aten.addmm.default",
    "aten.mm.default",
    "aten.matmul.default",
    to="cmsis",
    quantized_operands=_linear,
    sample=LAYER.format("3x4", ", 0.25", "2x4", "linear.default(%xr, %wr)", "2x3"),
)
def linear(x: Activation, *, op: SchemaOp, layer: Layer, b: Rewriter) -> OfUse:
    """Lower to `cmsis.quantized_linear`, or to a 1×1 convolution for a per-channel weight.

    The library's linear has one multiplier for all rows. Weights with a scale per row lower exactly
    to a 1×1 convolution, whose requantization is per channel.
    """
    weight = layer.weight
    if op.name != "aten.linear.default":
        key = b.weights.derive("cmsis.permute", [weight.key], permutation=[1, 0])
        blocks = tuple((1 - axis, block) for axis, block in weight.held.blocks)
        weight = StoredWeight(key, replace(weight.held, blocks=blocks))
    held = weight.held
    if held.axis not in (None, 0):
        refuse("the weight has a scale for each input, not for each output")
    if held.axis == 0 and not held.is_symmetric:
        refuse("the weight has a zero point for each row; the kernel takes none")
    if held.axis == 0 and not is_static(op.results[0].type):
        refuse("per-channel weights need a convolution, whose shape must be static")
    scales = {use: multipliers(layer, use) for use in layer.uses}
    rows = offset_rows(b.weights.get(weight.key), -held.zero_points[0])
    needs_sums(layer, rows, [*scales.values()], b.program, padded=False)
    shape = cast("tuple[int, int]", dims(b.weights.type_of(weight.key)))
    bias = bias_key(layer, shape[0], b.program)

    def of_use(use: Use) -> SSAValue:
        fields = requantization(x.held, use, scales[use])
        if held.axis is not None:
            return _pointwise(x, weight, bias, use, fields, b)
        typed = typed_weight(b, weight.key, tensor(shape, UniformQuantizedType(held)))
        added = None if bias is None else b.weight(bias)
        fields: dict[str, Any] = {"result": use.type, "filter_offset": -held.zero_point} | fields
        return written(QuantizedLinear.make(x.value, typed, added, None, **fields), b)

    return of_use


def _pointwise(
    x: Activation,
    weight: StoredWeight,
    bias: str | None,
    use: Use,
    fields: dict[str, Any],
    b: Rewriter,
) -> SSAValue:
    """Compute a linear layer's rows as the pixels of an image of width one."""
    *lead, inner = cast("tuple[int, ...]", dims(x.value.type))
    channels, rows = dims(b.weights.type_of(weight.key))[0], prod(lead)
    image = reshaped(b, x.value, (1, rows, 1, inner))
    kernel = (channels, 1, 1, inner)
    key = b.weights.derive("cmsis.reshape", [weight.key], shape=list(kernel))
    typed = typed_weight(b, key, tensor(kernel, UniformQuantizedType(weight.held)))
    op = QuantizedConv2dNhwc.make(
        image,
        typed,
        None if bias is None else b.weight(bias),
        result=tensor((1, rows, 1, channels), element(use.type)),
        stride=[1, 1],
        padding=[0, 0],
        dilation=[1, 1],
        **fields,
        scratch=0,
    )
    return reshaped(b, written(op, b), dims(use.type))


SAFE_INNER = (1 << 31) // (255 * 255)
"""The maximum length of a dot product of two int8 vectors with any zero points."""


def _matmul(op: SchemaOp) -> Parts | Refusal | None:
    """Match two computed operands of equal batch sizes, whose sums cannot overflow."""
    lhs, rhs = op.operands[0], op.operands[1]
    if len(dims(rhs.type)) == 2 and not isinstance(stored_weight(rhs), Refusal):
        return None
    if refusal := not_fixed(lhs, rhs):
        return refusal
    one, other = dims(lhs.type), dims(rhs.type)
    if len(one) < 2 or len(other) < 2 or one[:-2] != other[:-2]:
        return Refusal(
            f"the op multiplies {list(one)} by {list(other)}; the kernel broadcasts no batch"
        )
    if cast(int, one[-1]) > SAFE_INNER:
        return Refusal(f"a dot product of {one[-1]} terms can overflow int32")
    return Parts((lhs, rhs))


@lowers(
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mm.default",
    to="cmsis",
    quantized_operands=_matmul,
    takes_empty=True,
    sample="""
        %a = quant.dcast %x : tensor<1x2x4x!quant.uniform<i8:f32, 0.5>> to tensor<1x2x4xf32>
        %b = quant.dcast %y : tensor<1x4x3x!quant.uniform<i8:f32, 0.25:1>> to tensor<1x4x3xf32>
        %z = aten.bmm.default(%a, %b) : (tensor<1x2x4xf32>, tensor<1x4x3xf32>) -> tensor<1x2x3xf32>
        %q = quant.qcast %z : tensor<1x2x3xf32> to tensor<1x2x3x!quant.uniform<i8:f32, 2.0>>
    """,
)
def matmul(x: Activation, other: Activation, *, layer: Layer, b: Rewriter) -> OfUse:
    """Lower to `cmsis.quantized_batch_matmul`, which takes the right side transposed.

    Attention's q·kᵀ and p·v are two such products. The transposition inserted here cancels with the
    model's own `k.transpose(-2, -1)` by `cancel-transpose`.
    """
    reach = 255 * 255 * cast(int, dims(x.value.type)[-1])
    scales = {
        use: factor_of(x.held.scale * other.held.scale / use.held.scale) for use in layer.uses
    }
    for scale in scales.values():
        if requantize_overflows(-reach, reach, scale):
            refuse(f"a factor of {scale.real:g} takes the product past int32")
    left = _three_dimensional(b, x.value)
    rank = len(dims(other.value.type))
    if rank <= 4:
        order = [*range(rank - 2), rank - 1, rank - 2]
        right = _three_dimensional(b, transposed(b, other.value, order))
    else:
        right = transposed(b, _three_dimensional(b, other.value), (0, 2, 1))
    batch, rows, _ = dims(left.type)
    columns = dims(right.type)[1]

    def of_use(use: Use) -> SSAValue:
        wide = kernel_type(use)
        op = QuantizedBatchMatmul.make(
            left,
            right,
            result=tensor((batch, rows, columns), element(wide)),
            lhs_zero_point=-x.held.zero_point,
            rhs_zero_point=-other.held.zero_point,
            output_zero_point=use.held.zero_point,
            output_multiplier=scales[use].multiplier,
            output_shift=scales[use].shift,
            scratch=0,
        )
        value = reshaped(b, written(op, b), dims(use.type))
        assert value.type == with_element(use.type, element(wide))
        return rescaled(b, value, use)

    return of_use


def _three_dimensional(b: Rewriter, value: SSAValue) -> SSAValue:
    *lead, rows, columns = cast("tuple[int, ...]", dims(value.type))
    return reshaped(b, value, (prod(lead), rows, columns))


RULES = lowerings_of(__name__)
