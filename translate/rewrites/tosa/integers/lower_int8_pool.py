"""Pools of quantised images to AVG_POOL2D and MAX_POOL2D on the stored integers.

The pools take an input's zero point and pass its scale through; where the result has another one, a
RESCALE follows. The mean of a whole plane at another scale is a sum and one RESCALE: it rounds once.
So is an average that is quantised finer than its operand: a depthwise convolution with ones sums it.

Before:
    %a = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %m = aten.max_pool2d.default(%a, [2, 2]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
    %y = quant.qcast %m : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
After:
    %0 = quant.scast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xi8>
    %1 = tosa.transpose %0 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x2x4x4xi8>) -> tensor<1x4x4x2xi8>
    %2 = tosa.max_pool2d %1 {kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x4x2xi8>) -> tensor<1x2x2x2xi8>
    %3 = tosa.transpose %2 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi8>
    %y = quant.scast %3 : tensor<1x2x2x2xi8> to tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import Quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.quantised.recognise import Use, is_finer
from stepwell.translate.rewrites.tosa.integers.integers import (
    WIDTHS,
    LowerInt8,
    Quantised,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, i64s, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import TO_NCHW, TO_NHWC
from stepwell.translate.rewrites.tosa.operators.sizes import is_known
from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean, pool_window


@dataclass(frozen=True)
class LowerInt8Pool(LowerInt8):
    """Averages of an image to AVG_POOL2D, and a RESCALE where the scale changes; MAX_POOL2D."""

    name: ClassVar[str] = "lower-int8-pool"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AvgPool2dDefault,
        aten.MaxPool2dDefault,
        aten.MeanDim,
    )

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """A whole plane, or windows that TOSA's pools have."""
        found = super().match(op, program)
        if not isinstance(op, aten.MeanDim) or not isinstance(found, Quantised):
            return found
        if is_image_mean(op, level_of(program.context.target)):
            return found
        return Refusal("the mean is not over the height and width of images that a pool holds")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Windows that TOSA's pools have; a mean's is its plane."""
        found = None if isinstance(op, aten.MeanDim) else pool_window(op)
        return found if isinstance(found, Refusal) else None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """The pool on integers; zero points are subtracted and added by the operators."""
        op, x = match.op, match.inputs[0]
        image = b.transpose(stored(x.value, b), TO_NHWC)
        n, height, width, channels = shape_of(image)
        if isinstance(op, aten.MeanDim):
            kernel, stride, pad = (height, width), (1, 1), (0, 0, 0, 0)
            size: Sequence[int] = (1, 1)
        else:
            found = pool_window(op)
            assert not isinstance(found, Refusal)
            kernel, stride, pad = found
            size = shape_of(op.results[0])[2:]
        lists = {"kernel": i64s(kernel), "stride": i64s(stride), "pad": i64s(pad)}
        shape = (n, *size, channels)
        whole = list(kernel) == [height, width] and not any(pad)
        same = x.held.scale == use.held.scale and x.held.zero_point == use.held.zero_point
        if whole and not same and not isinstance(op, aten.MaxPool2dDefault):
            y = _whole_mean(image, x.held, use.held, b)
        elif isinstance(op, aten.MaxPool2dDefault):
            y = b.op(t.MaxPool2dOp, [image], shape, match.held, **lists)
        elif is_finer(use, x) and (parts := _parts(kernel, stride, pad, image)) is not None:
            y = _windows_summed(image, x.held, lists, shape, b)
            whole_sum, each = parts
            if bool((each != 1).any()):
                y = b.binary(t.MulOp, y, b.constant(each), i32)
            factor = x.held.scale / (whole_sum * use.held.scale)
            y = rescale(y, [factor], match.held, 0, use.held.zero_point, b)
            return b.reshape(b.transpose(y, TO_NCHW), shape_of(op.results[0]))
        else:
            zero = b.number(x.held.zero_point, 1, match.held)
            y = b.op(t.AvgPool2dOp, [image, zero, zero], shape, match.held, acc_type=i32, **lists)
        if not same and not (whole and is_mean(op)):
            factor = x.held.scale / use.held.scale
            y = rescale(y, [factor], match.held, x.held.zero_point, use.held.zero_point, b)
        return b.reshape(b.transpose(y, TO_NCHW), shape_of(op.results[0]))


def _parts(
    kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], image: SSAValue
) -> tuple[int, torch.Tensor] | None:
    """What sums over windows are multiplied by, int32 `[1, h, w, 1]`, and then divided by.

    The elements of a window that lie inside the image count. None: not of bytes, or past int32.
    """
    if element(image.type) != i8 or not is_known(shape_of(image)[1:3]):
        return None
    _, height, width, _ = shape_of(image)
    top, bottom, left, right = pad
    inside = torch.nn.functional.pad(torch.ones(1, 1, height, width), (left, right, top, bottom))
    ones = torch.ones(1, 1, *kernel)
    counts = torch.nn.functional.conv2d(inside, ones, stride=tuple(stride)).to(torch.int32)
    multiple = lcm(*counts.unique().tolist())
    if 255 * multiple >= 1 << 30:
        return None
    return multiple, multiple // counts.permute(0, 2, 3, 1)


def _windows_summed(
    image: SSAValue, held: Quantization, lists: dict[str, Any], shape: tuple[int, ...], b: Builder
) -> SSAValue:
    """Sums over windows in int32: a depthwise convolution with ones."""
    kernel, stride, pad = (lists[name] for name in ("kernel", "stride", "pad"))
    ones = torch.ones((*kernel.get_values(), shape[3], 1), dtype=torch.int8)
    operands = [image, b.constant(ones), b.constant(torch.zeros(1, dtype=torch.int32))]
    operands += [b.number(held.zero_point, 1, i8), b.zero(i8)]
    return b.op(
        t.DepthwiseConv2dOp,
        operands,
        shape,
        i32,
        acc_type=i32,
        pad=pad,
        stride=stride,
        dilation=i64s((1, 1)),
    )


def is_mean(op: SchemaOp) -> bool:
    """Whether a pool averages."""
    return not isinstance(op, aten.MaxPool2dDefault)


def _whole_mean(image: SSAValue, given: Quantization, result: Quantization, b: Builder) -> SSAValue:
    """The mean of a whole plane, rounded once: the sum in int32, divided by the RESCALE."""
    _, height, width, _ = shape_of(image)
    wide = rescale(image, [1.0], i32, given.zero_point, 0, b)
    total = b.reduce(t.ReduceSumOp, b.reduce(t.ReduceSumOp, wide, 1), 2)
    factor = given.scale / (height * width * result.scale)
    return rescale(total, [factor], WIDTHS[result.bits], 0, result.zero_point, b)
