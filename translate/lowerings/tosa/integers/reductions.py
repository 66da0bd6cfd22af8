"""Lowerings of sums, means, extrema, pools, cumulative sums and resizing of integers.

A sum is computed in int32 without the zero point. One RESCALE converts it to the result's scale,
and for a mean divides by the number of elements, so it rounds once. Maxima and minima are those of
the stored integers, since quantization is monotone; a RESCALE follows if the scale changes. Pools
use the input's zero point and keep its scale. An average with a finer scale than its operand's is a
depthwise convolution with ones. The weights of a linear RESIZE add up to the product of its
numerators, by which RESCALE divides; the zero point, scaled by that product, is subtracted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i8, i32
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.lowerings.tosa.convolving import TO_NCHW, TO_NHWC, Placed
from stepwell.translate.lowerings.tosa.integers.values import (
    Integers,
    delivered,
    needs_scales,
    rescaled,
)
from stepwell.translate.lowerings.tosa.reductions import added_up
from stepwell.translate.lowerings.tosa.resizing import (
    UPSAMPLINGS,
    as_image,
    axes_of,
    not_resized,
    resized,
)
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantized.recognize import Use, is_finer
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS, is_rescaled
from stepwell.translate.rewrites.tosa.operators.building import Builder, i64s
from stepwell.translate.rewrites.tosa.operators.lowering import reduced_axes
from stepwell.translate.rewrites.tosa.operators.sizes import is_known
from stepwell.translate.rewrites.tosa.operators.windows import Window, is_image_mean, pool_window

MATRIX = """
    %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %s = aten.{} : (tensor<2x4xf32>) -> tensor<{}xf32>
    %y = quant.qcast %s : tensor<{}xf32> to tensor<{}x!quant.uniform<i8:f32, 2.0:-1>>
"""
IMAGE = """
    %a = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %s = aten.{} : (tensor<1x2x4x4xf32>) -> tensor<{}xf32>
    %y = quant.qcast %s : tensor<{}xf32> to tensor<{}x!quant.uniform<i8:f32, 0.5:3>>
"""


def needs_sum(x: Integers, factor: float, count: int) -> None:
    """Refuse a sum that, for some input, overflows int32 or exceeds RESCALE's range."""
    if not is_rescaled(factor, float(count << x.held.bits)):
        refuse(f"a sum over {count} elements can exceed RESCALE's range")


@lowers(
    "aten.avg_pool2d.default",
    "aten.max_pool2d.default",
    "aten.mean.dim",
    to="tosa",
    quantized_operands=1,
    sample=IMAGE.format("avg_pool2d.default(%a, [2, 2])", "1x2x2x2", "1x2x2x2", "1x2x2x2"),
)
def int8_pool(x: Integers, *, op: Any, use: Use, out: Out, b: Builder) -> Value:
    """Lower to AVG_POOL2D, and a RESCALE if the scale changes, or to MAX_POOL2D.

    The mean of a whole plane at another scale is a sum and one RESCALE, which rounds once.
    """
    window = None if isinstance(op, aten.MeanDim) else no_refusal(pool_window(op))
    needs_scales(use, x)
    if window is None and not is_image_mean(op, level_of(b.rw.program.context.target)):
        refuse("the mean is not over the height and width of images within TOSA's pool size")
    image = x.stored().permute(TO_NHWC)
    if window is not None and min(window[2]) < 0:
        image, window = _without_unread(image, window)
    n, height, width, channels = image.shape
    kernel, stride, pad = window or ((height, width), (1, 1), (0, 0, 0, 0))
    size: Sequence[int] = (1, 1) if window is None else out.shape[2:]
    lists = {"kernel": kernel, "stride": stride, "pad": pad}
    fields = {name: i64s(values) for name, values in lists.items()}
    shape, zero = (n, *size, channels), x.held.zero_point
    is_mean = not isinstance(op, aten.MaxPool2dDefault)
    factor, same = x.held.scale / use.held.scale, x.means_what(use)
    if not is_mean:
        y = image.made(t.MaxPool2dOp, shape, **fields)
    elif list(kernel) == [height, width] and not any(pad) and not same:
        wide = rescaled(image, 1.0, zero)
        total = wide.sum(1).sum(2)
        y, same = delivered(total, x.held.scale / (height * width * use.held.scale), use), True
    elif is_finer(use, x.given) and (parts := _parts(kernel, stride, pad, image)) is not None:
        whole, each = parts
        y = _windows_summed(image, zero, lists, shape)
        if bool((each != 1).any()):
            y = y * y.tensor(each)
        y, same = delivered(y, x.held.scale / (whole * use.held.scale), use), True
    else:
        zeros = [b.number(zero, 1, WIDTHS[x.held.bits])] * 2
        y = image.made(t.AvgPool2dOp, shape, *zeros, acc_type=i32, **fields)
    if not same:
        y = delivered(y, factor, use, zero)
    return y.permute(TO_NCHW).reshape(*out.shape)


def _without_unread(image: Value, window: Window) -> tuple[Value, Window]:
    """Remove the rows and columns at the end of an NHWC image that belong to no window."""
    kernel, stride, (top, bottom, left, right) = window
    for axis, width in ((1, bottom), (2, right)):
        image = image.narrow(axis, 0, image.shape[axis] + min(width, 0))
    return image, (kernel, stride, (top, max(bottom, 0), left, max(right, 0)))


def _parts(
    kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], image: Value
) -> tuple[int, torch.Tensor] | None:
    """Return multipliers of window sums, int32 `[1, h, w, 1]`, and their common divisor.

    Only the elements of a window inside the image count. Returns None if the integers are not bytes
    or the product may exceed int32.
    """
    if image.dtype != i8:
        return None
    counts = torch.tensor([[[[prod(kernel)]]]])
    if any(pad):
        if not is_known(image.shape[1:3]):
            refuse("a symbolic size decides how many elements of a window count")
        _, height, width, _ = image.shape
        top, bottom, left, right = pad
        around = (left, right, top, bottom)
        inside = torch.nn.functional.pad(torch.ones(1, 1, height, width), around)
        ones = torch.ones(1, 1, *kernel)
        counts = torch.nn.functional.conv2d(inside, ones, stride=tuple(stride)).to(torch.int32)
    multiple = lcm(*counts.unique().tolist())
    if 255 * multiple >= 1 << 30:
        return None
    return multiple, multiple // counts.permute(0, 2, 3, 1)


def _windows_summed(
    image: Value, zero: int, lists: dict[str, Sequence[int]], shape: tuple[int, ...]
) -> Value:
    """Return window sums in int32, by a depthwise convolution with ones."""
    ones = torch.ones((*lists["kernel"], shape[3], 1), dtype=torch.int8)
    moves = {"pad": lists["pad"], "stride": lists["stride"], "dilation": (1, 1)}
    placed = Placed(t.DepthwiseConv2dOp, image, image.tensor(ones), shape, moves)
    return placed.summed(image.tensor(torch.zeros(1, dtype=torch.int32)), i32, i32, zero)


@lowers(
    {
        "aten.sum.dim_IntList": None,
        "aten.mean.dim": None,
        "aten.amax.default": t.ReduceMaxOp,
        "aten.amin.default": t.ReduceMinOp,
    },
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    sample=MATRIX.format("sum.dim_IntList(%a, [1], true)", "2x1", "2x1", "2x1"),
)
def int8_reduction(
    x: Integers, *, form: type[TosaOp] | None, op: Any, use: Use, b: Builder
) -> Value:
    """Lower to one REDUCE per axis, between RESCALEs for a sum; means of images are pools."""
    axes = reduced_axes(op)
    if is_image_mean(op, level_of(b.rw.program.context.target)):
        refuse("the op is a mean of images; the lowering to a pool applies")
    if "keepdim" in op.SCHEMA.by_name and not op.arg("keepdim"):
        refuse("the axes are not kept; normalize-reduction keeps them")
    needs_scales(use, x)
    count = prod(x.shape[axis] for axis in axes)
    factor = x.held.scale / use.held.scale
    factor /= count if isinstance(op, aten.MeanDim) else 1
    if form is None:
        needs_sum(x, factor, count)
    y = x.stored() if form is not None else x.wide()
    for axis in axes:
        y = y.reduce(form or t.ReduceSumOp, axis)
    if form is None:
        return delivered(y, factor, use)
    return y if x.means_what(use) else delivered(y, factor, use, x.held.zero_point)


@lowers(
    "aten.cumsum.default",
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    sample=MATRIX.format("cumsum.default(%a, 1)", "2x4", "2x4", "2x4"),
)
def int8_cumsum(x: Integers, *, dim: int, use: Use) -> Value:
    """Add up without the zero point, at the operand's scale."""
    if not x.shape:
        refuse("the operand is a scalar, which has no axis")
    factor = x.held.scale / use.held.scale
    needs_scales(use, x)
    needs_sum(x, factor, x.shape[dim % len(x.shape)])
    wide = x.wide()
    return delivered(added_up(wide, wide.axis(dim)), factor, use)


@lowers(
    UPSAMPLINGS,
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    sample=IMAGE.format(
        "upsample_bilinear2d.default(%a, [8, 8], false)", "1x2x8x8", "1x2x8x8", "1x2x8x8"
    ),
)
def int8_resize(x: Integers, *, form: str, op: Any, use: Use, out: Out) -> Value:
    """Lower nearest and bilinear resizing of lines and images to RESIZE and RESCALE, in NHWC."""
    axes, is_linear = axes_of(op), form == "linear"
    no_refusal(not_resized(op))
    if len(axes) > 2:
        refuse("the op resizes a volume; RESIZE has two axes")
    if any(axis.parameters() is None for axis in axes):
        refuse("RESIZE has no parameters for these sizes")
    if is_linear and x.held.bits == 16:
        refuse("the sums would have 48 bits with a zero point")
    needs_scales(use, x, times=4)  # Interpolated sums exceed the inputs by this factor.
    image, plane = as_image(x.stored(), axes)
    zero, factor = x.held.zero_point, x.held.scale / use.held.scale
    if is_linear:
        sums, weights = resized(image, plane, i32)
        # Keep a zero point in weighted sums of bytes; a SUB would take two passes of an NPU.
        if zero and not x.means_what(use):
            sums = sums - zero * weights
        made = 0 if x.means_what(use) else use.held.zero_point
        y = rescaled(sums, factor / weights, 0, WIDTHS[use.held.bits], made)
    else:
        y = resized(image, plane, image.dtype)[0]
        y = y if x.means_what(use) else delivered(y, factor, use, zero)
    return y.permute(TO_NCHW).reshape(*out.shape)


RULES = lowerings_of(__name__)
