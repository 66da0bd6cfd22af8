"""Convolutions and matrix products on plain tensors.

Integers are computed in float64, in which every accumulator is exact (the longest, int48, has 48
bits), then stored in the accumulator's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.meaning.block_scaled import values_of
from stepwell.dialects.tosa.meaning.values import (
    BlockScaled,
    element_of,
    ints,
    is_integer,
    narrow,
    result_element,
    wide,
    zero_point,
)
from stepwell.dialects.tosa_mxfp import sequential
from stepwell.dialects.tosa_mxfp.products import matmul_t_of_types
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.dtypes import torch_dtype

Args = Sequence[Any]


def _centered(x: Any, zp: Tensor, value: SSAValue) -> Tensor:
    """Subtract the zero point from an operand, in the type of the computation."""
    if isinstance(x, BlockScaled):
        return values_of(x)
    if is_integer(element_of(value)):
        return x.to(torch.float64) - zero_point(zp)
    return wide(x)


def _common(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(x.dtype, weight.dtype)
    return x.to(dtype), weight.to(dtype)


def _with_bias(sums: Tensor, bias: Tensor, op: TosaOp) -> Tensor:
    """Add the bias; float16 is rounded before the addition and again after it."""
    if not is_integer(result_element(op)):
        sums = wide(narrow(sums, op))
    return narrow(sums + wide(bias).to(sums.dtype), op).contiguous()


@interprets(t.Conv2dOp)
def _conv2d(op: t.Conv2dOp, args: Args, ctx: Interpreter) -> Args:
    x, weight, bias, input_zp, weight_zp = args
    image = _centered(x, input_zp, op.input).permute(0, 3, 1, 2)
    kernel = _centered(weight, weight_zp, op.weight).permute(0, 3, 1, 2)
    image, kernel = _common(image, kernel)
    pad, stride, dilation = ints(op.pad), ints(op.stride), ints(op.dilation)
    if image.dtype == torch.float32:
        y = sequential.convolution(image, kernel, pad, stride, dilation)
    else:
        top, bottom, left, right = pad
        image = F.pad(image, (left, right, top, bottom))
        y = F.conv2d(image, kernel, None, stride, 0, dilation)
    return (_with_bias(y.permute(0, 2, 3, 1), bias, op),)


@interprets(t.DepthwiseConv2dOp)
def _depthwise(op: t.DepthwiseConv2dOp, args: Args, ctx: Interpreter) -> Args:
    x, weight, bias, input_zp, weight_zp = args
    image = _centered(x, input_zp, op.input).permute(0, 3, 1, 2)
    kernel = _centered(weight, weight_zp, op.weight)
    height, width, channels, multiplier = kernel.shape
    kernel = kernel.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    image, kernel = _common(image, kernel)
    pad, stride, dilation = ints(op.pad), ints(op.stride), ints(op.dilation)
    if image.dtype == torch.float32:
        y = sequential.depthwise(image, kernel, pad, stride, dilation)
    else:
        top, bottom, left, right = pad
        image = F.pad(image, (left, right, top, bottom))
        y = F.conv2d(image, kernel, None, stride, 0, dilation, channels)
    return (_with_bias(y.permute(0, 2, 3, 1), bias, op),)


@interprets(t.Conv3dOp)
def _conv3d(op: t.Conv3dOp, args: Args, ctx: Interpreter) -> Args:
    x, weight, bias, input_zp, weight_zp = args
    image = _centered(x, input_zp, op.input).permute(0, 4, 1, 2, 3)
    kernel = _centered(weight, weight_zp, op.weight).permute(0, 4, 1, 2, 3)
    image, kernel = _common(image, kernel)
    front, back, top, bottom, left, right = ints(op.pad)
    image = F.pad(image, (left, right, top, bottom, front, back))
    y = F.conv3d(image, kernel, None, ints(op.stride), 0, ints(op.dilation))
    return (_with_bias(y.permute(0, 2, 3, 4, 1), bias, op),)


@interprets(t.TransposeConv2dOp)
def _transpose_conv2d(op: t.TransposeConv2dOp, args: Args, ctx: Interpreter) -> Args:
    x, weight, bias, input_zp, weight_zp = args
    image = _centered(x, input_zp, op.input).permute(0, 3, 1, 2)
    kernel = _centered(weight, weight_zp, op.weight).permute(3, 0, 1, 2)
    image, kernel = _common(image, kernel)
    y = F.conv_transpose2d(image, kernel, None, ints(op.stride))
    top, bottom, left, right = ints(op.out_pad)
    y = F.pad(y, (left, right, top, bottom)).permute(0, 2, 3, 1)
    return (_with_bias(y, bias, op),)


@interprets(t.MatMulOp, t.MatMulTOp)
def _matmul(op: t.MatMulOp | t.MatMulTOp, args: Args, ctx: Interpreter) -> Args:
    """Multiply; sums of floats are rounded to the result's type at every addition."""
    a, b, a_zp, b_zp = args
    if isinstance(a, BlockScaled) and isinstance(b, BlockScaled):
        left, right = (a.codes, a.scales, a.payload), (b.codes, b.scales, b.payload)
        return (matmul_t_of_types(left, right, torch_dtype(result_element(op))),)
    left, right = _common(_centered(a, a_zp, op.a), _centered(b, b_zp, op.b))
    if isinstance(op, t.MatMulTOp):
        right = right.transpose(1, 2)
    if left.dtype == torch.float32:
        return (sequential.product(left, right, torch_dtype(result_element(op))),)
    return (narrow(torch.matmul(left, right), op),)
