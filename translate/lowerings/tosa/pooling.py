"""Lowerings of pools of images, in NHWC, with padding and dilation that TOSA's pools lack."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i8, i16, torch_dtype
from stepwell.ir.sizes.size import Dim, settled
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.lowerings.tosa.convolving import TO_NCHW, TO_NHWC, fit_to_windows
from stepwell.translate.lowerings.tosa.movement import gathered
from stepwell.translate.lowerings.tosa.values import Value, needs_floats, needs_known
from stepwell.translate.rewrites.tosa.operators.building import accumulator, i64s
from stepwell.translate.rewrites.tosa.operators.sizes import is_known
from stepwell.translate.rewrites.tosa.operators.windows import (
    counts_padding,
    is_dilated,
    not_pooled,
    padding,
    pair,
    window_places,
)

POOLS = {
    "aten.max_pool2d.default": t.MaxPool2dOp,
    "aten.avg_pool2d.default": t.AvgPool2dOp,
}


@lowers(POOLS, to="tosa", sample=("1x2x4x4xf32", [2, 2]))
def pooling(
    x: Value, kernel_size: list[int], steps: list[int], *, form: Any, op: Any, out: Out
) -> Value:
    """Lower to MAX_POOL2D or AVG_POOL2D between transposes, after padding or cropping."""
    no_refusal(not_pooled(op))
    is_maximum = form is t.MaxPool2dOp
    if is_dilated(op):
        needs_known(x, (2, 3), "dilated windows of a plane of size")
    places = window_places(op) if is_dilated(op) else ([], [])
    if places is None:
        refuse("a dilated window is entirely in the padding")
    if not is_maximum or x.dtype not in (i8, i16):
        needs_floats(op, x)
    kernel, stride, size = pair(kernel_size), pair(steps or kernel_size), out.shape[2:]
    if is_dilated(op):  # The cells of each window are gathered next to each other.
        image = x.permute(TO_NHWC)
        for axis, indices in enumerate(places, 1):
            image = gathered(image, axis, indices)
        return image_pool(image.permute(TO_NCHW), form, kernel, kernel, (0, 0, 0, 0), size)
    pad = list(padding(op))
    if counts_padding(op):
        before = pair(op.arg("padding"))
        x = x.pad([0] * 4 + [before[0]] * 2 + [before[1]] * 2)
        pad = [0, settled(pad[1] - before[0]), 0, settled(pad[3] - before[1])]
    if not is_known(pad):
        return _padded_pool(op, x, form, pad, size)
    for axis, behind in ((2, pad[1]), (3, pad[3])):
        if behind < 0:
            x = x.narrow(axis, 0, x.shape[axis] + behind)
    return image_pool(x, form, kernel, stride, [max(one, 0) for one in pad], size)


def image_pool(
    x: Value,
    cls: type[TosaOp],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Any],
    size: Sequence[Dim],
) -> Value:
    """Pool an NCHW image, in NHWC."""
    image, zero = x.permute(TO_NHWC), x.b.zero
    lists = {"kernel": i64s(kernel), "stride": i64s(stride), "pad": i64s(pad)}
    shape = (image.shape[0], *size, image.shape[3])
    if cls is not t.AvgPool2dOp:
        return image.made(cls, shape, **lists).permute(TO_NCHW)
    zeros, sums = (zero(x.dtype), zero(x.dtype)), accumulator(x.dtype)
    return image.made(cls, shape, *zeros, acc_type=sums, **lists).permute(TO_NCHW)


def _padded_pool(
    op: Any, x: Value, cls: type[TosaOp], pad: Sequence[Any], size: Sequence[Dim]
) -> Value:
    """Pool an image whose size determines its padding, with an explicit pad."""
    is_maximum = cls is t.MaxPool2dOp
    kernel, before = pair(op.arg("kernel_size")), pair(op.arg("padding"))
    stride = pair(op.arg("stride") or kernel)
    more = [step - 1 if op.arg("ceil_mode") else 0 for step in stride]
    most = [sum(both) if is_maximum else 0 for both in zip(before, more, strict=True)]
    dtype = torch_dtype(x.dtype)
    least = -inf if dtype.is_floating_point else torch.iinfo(dtype).min
    image, left = fit_to_windows(x.permute(TO_NHWC), (pad[1], pad[3]), most, least)
    around = (pad[0], left[0], pad[2], left[1])
    return image_pool(image.permute(TO_NCHW), cls, kernel, stride, around, size)


RULES = lowerings_of(__name__)
