"""Semantics of nodes with a window. Images are NHWC; torch's layout is internal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.meaning.arithmetic import (
    clamp_stored,
    parameters,
    saturate,
    single,
)
from stepwell.dialects.xnnpack.meaning.elementwise import clamp_float
from stepwell.dialects.xnnpack.meaning.matmul import weighted
from stepwell.dialects.xnnpack.spatial import (
    ArgMaxPooling2d,
    AveragePooling2d,
    Convolution2d,
    Deconvolution2d,
    DepthwiseConvolution2d,
    GlobalAveragePooling2d,
    MaxPooling2d,
    StaticResizeBilinear2d,
)
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import i64
from stepwell.ir.types import element

Tensor = torch.Tensor


def _channels_first(image: Tensor) -> Tensor:
    return image.permute(0, 3, 1, 2)


def _channels_last(image: Tensor) -> Tensor:
    return image.permute(0, 2, 3, 1)


def _padded(
    image: Tensor, paddings: Sequence[int], value: float = 0.0, mode: str = "constant"
) -> Tensor:
    """Pad a channels-first image with (top, right, bottom, left) rows and columns."""
    top, right, bottom, left = paddings
    if mode == "constant":
        return F.pad(image, (left, right, top, bottom), value=value)
    return F.pad(image, (left, right, top, bottom), mode=mode)


@interprets(Convolution2d, DepthwiseConvolution2d)
def _convolution(
    op: Convolution2d | DepthwiseConvolution2d, args: Sequence[Any], ctx: object
) -> Sequence[Any]:
    is_depthwise = isinstance(op, DepthwiseConvolution2d)
    outputs_first = (3, 0, 1, 2) if is_depthwise else (0, 3, 1, 2)

    def product(image: Tensor, weight: Tensor) -> Tensor:
        made = F.conv2d(
            _padded(_channels_first(image), op.paddings),
            weight.permute(outputs_first),
            stride=op.pair("stride"),
            dilation=op.pair("dilation"),
            groups=image.shape[-1] if is_depthwise else op.integer("groups", 1),
        )
        return _channels_last(made)

    return (weighted(op, args, product, op.filter_shape[op.CHANNEL_AXIS]),)


@interprets(Deconvolution2d)
def _deconvolution(op: Deconvolution2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    groups = op.integer("groups", 1)
    top, right, bottom, left = op.paddings
    adjustment = op.pair("adjustment", 0)

    def product(image: Tensor, weight: Tensor) -> Tensor:
        outputs, height, width, inputs = weight.shape
        by_group = weight.reshape(groups, outputs // groups, height, width, inputs)
        filters = by_group.permute(0, 4, 1, 2, 3).reshape(-1, outputs // groups, height, width)
        pad = F.conv_transpose2d(
            _channels_first(image),
            filters,
            stride=op.pair("stride"),
            dilation=op.pair("dilation"),
            groups=groups,
        )
        pad = F.pad(pad, (0, adjustment[1], 0, adjustment[0]))
        rows, columns = pad.shape[2] - bottom, pad.shape[3] - right
        return _channels_last(pad[:, :, top:rows, left:columns])

    return (weighted(op, args, product, op.filter_shape[0]),)


def _with_padding(
    image: Tensor, op: MaxPooling2d | AveragePooling2d, value: float
) -> tuple[Tensor, tuple[int, int]]:
    """Return a channels-first image, and padding as in PyTorch's pools: equal on both sides."""
    top, right, bottom, left = op.paddings
    height, width = op.window
    if (top, left) == (bottom, right) and 2 * top <= height and 2 * left <= width:
        return image, (top, left)
    return _padded(image, op.paddings, value), (0, 0)


@interprets(MaxPooling2d)
def _max_pooling(op: MaxPooling2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    image = cast(Tensor, args[0])
    padded, padding = _with_padding(_channels_first(image).float(), op, float("-inf"))
    made = F.max_pool2d(padded, op.window, op.pair("stride"), padding, op.pair("dilation"))
    result = _channels_last(made)
    held = quantization(op.input.type)
    if held is None:
        return (clamp_float(result, op).to(image.dtype),)
    return (clamp_stored(result.to(image.dtype), held, op.output_range),)


@interprets(AveragePooling2d)
def _average_pooling(op: AveragePooling2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    image = cast(Tensor, args[0])
    first, stride = _channels_first(image).float(), op.pair("stride")
    padded, padding = _with_padding(first, op, 0.0)
    if padded is first:
        made = F.avg_pool2d(first, op.window, stride, padding, count_include_pad=False)
    else:
        ones = _padded(torch.ones_like(first[:1, :1]), op.paddings)
        made, counted = (
            F.avg_pool2d(value, op.window, stride, divisor_override=1) for value in (padded, ones)
        )
        made = made / counted
    return (clamp_float(_channels_last(made), op).to(image.dtype),)


@interprets(ArgMaxPooling2d)
def _argmax_pooling(op: ArgMaxPooling2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    image = cast(Tensor, args[0])
    height, width = op.window
    padded = _padded(_channels_first(image), op.paddings, mode="replicate")
    windows = padded.unfold(2, height, height).unfold(3, width, width)
    windows = windows.transpose(-1, -2).flatten(-2)  # XNNPACK counts in column-major order.
    value, index = windows.max(dim=-1)
    dtype = torch.int64 if element(op.index.type) == i64 else torch.int32
    return _channels_last(value), _channels_last(index).to(dtype)


@interprets(GlobalAveragePooling2d)
def _global_average(op: GlobalAveragePooling2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    image = cast(Tensor, args[0])
    axes, keep = (-3, -2), op.flag("keep_dims")
    if quantization(op.input.type) is None:
        made = image.float().mean(axes, keepdim=keep)
        return (clamp_float(made, op).to(image.dtype),)
    given, result_parameters = parameters(op.input.type), parameters(op.result.type)
    total = image.long().sum(axes, keepdim=keep)
    count = single(image.shape[-3] * image.shape[-2])
    scale = single(given.scale) / single(result_parameters.scale) * (1.0 / count)
    # Both zero points are one addend, so that a tie may round differently than without them.
    offset = result_parameters.zero_point - given.zero_point * count * scale
    made = saturate(torch.round(total.float() * scale + offset), result_parameters)
    return (clamp_stored(made, result_parameters, op.output_range),)


@interprets(StaticResizeBilinear2d)
def _resize(op: StaticResizeBilinear2d, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    image = cast(Tensor, args[0])
    height, width = op.ints("new_size")
    corners = op.flag("align_corners")
    if quantization(op.input.type) is not None:
        return (_resize_stored(image, height, width, corners),)
    made = F.interpolate(
        _channels_first(image).float(), (height, width), mode="bilinear", align_corners=corners
    )
    return (_channels_last(made).to(image.dtype),)


def _resize_stored(image: Tensor, height: int, width: int, corners: bool) -> Tensor:
    """Interpolate stored integers with weights of 11 bits and one rounding."""
    rows, down, vertical = _neighbors(image.shape[1], height, corners)
    columns, across, horizontal = _neighbors(image.shape[2], width, corners)
    whole = image.long()
    top, bottom = whole[:, rows], whole[:, down]
    weight_of_right = horizontal[None, None, :, None]

    def blend(row: Tensor) -> Tensor:
        left, right = row[:, :, columns], row[:, :, across]
        return (left << 11) + weight_of_right * (right - left)

    upper, lower = blend(top), blend(bottom)
    mixed = (upper << 11) + vertical[None, :, None, None] * (lower - upper)
    return ((mixed + (1 << 21)) >> 22).to(image.dtype)


def _neighbors(size: int, wanted: int, corners: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each new index the old ones around it and the weight of the second in 2048ths."""
    places = torch.arange(wanted, dtype=torch.float32)
    if corners and wanted > 1:
        at = places * (single(size - 1) / single(wanted - 1))
    else:
        ratio = single(size) / single(wanted)
        at = places * ratio + (0.0 if corners else 0.5 * ratio - 0.5)
    at = at.clamp(0.0, float(size - 1))
    first = at.long()
    second = (first + 1).clamp(max=size - 1)
    return first, second, torch.round((at - first) * 2048).long()
