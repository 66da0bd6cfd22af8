"""Semantics of average and maximum pooling, with attributes or with shape values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.meaning.quantized import apply_scale_32
from stepwell.dialects.tosa.meaning.values import (
    bounds,
    ignores_nan,
    ints,
    is_integer,
    narrow,
    result_element,
    wide,
    zero_point,
)
from stepwell.ir.declared.interpretation import Interpreter, interprets

Args = Sequence[Any]
Window = tuple[Sequence[int], Sequence[int], Sequence[int]]


def _window(op: TosaOp, args: Args) -> Window:
    """Return kernel, stride and pad, from attributes or from the last three operands."""
    if isinstance(op, t.AvgPool2dOp | t.MaxPool2dOp):
        return ints(op.kernel), ints(op.stride), ints(op.pad)
    return args[-3], args[-2], args[-1]


def _unfold(x: Tensor, window: Window, fill: float | int) -> Tensor:
    """Unfold NHWC to `[N, OH, OW, C, KH, KW]`."""
    kernel, stride, (top, bottom, left, right) = window
    x = F.pad(x, (0, 0, left, right, top, bottom), value=fill)
    return x.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1])


@interprets(t.MaxPool2dOp, t.MaxPool2dAdaptiveOp)
def _max_pool(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    x = wide(args[0])
    if not x.dtype.is_floating_point:
        low, _ = bounds(result_element(op))
        return (narrow(_unfold(x, _window(op, args), low).amax((-2, -1)), op),)
    if ignores_nan(op):
        missing = torch.isnan(x)
        best = _unfold(torch.where(missing, -torch.inf, x), _window(op, args), -torch.inf)
        present = _unfold((~missing).to(x.dtype), _window(op, args), 0).amax((-2, -1))
        return (narrow(torch.where(present > 0, best.amax((-2, -1)), torch.nan), op),)
    return (narrow(_unfold(x, _window(op, args), -torch.inf).amax((-2, -1)), op),)


@interprets(t.AvgPool2dOp, t.AvgPool2dAdaptiveOp)
def _avg_pool(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    x, input_zp, output_zp = args[:3]
    window = _window(op, args)
    element = result_element(op)
    # Elements of the padding count neither in the sum nor in the divisor.
    count = _unfold(torch.ones(1, *x.shape[1:3], 1), window, 0).sum((-2, -1)).to(torch.int64)
    if not is_integer(element):
        return (narrow(_unfold(wide(x), window, 0).sum((-2, -1)) / count, op),)
    total = _unfold(x.to(torch.int64) - int(zero_point(input_zp)), window, 0).sum((-2, -1))
    multiplier, shift = _reciprocal_scale(count)
    scaled = apply_scale_32(total, multiplier, shift, False) + int(zero_point(output_zp))
    return (narrow(scaled.clamp(*bounds(element)), op),)


def _reciprocal_scale(value: Tensor) -> tuple[Tensor, Tensor]:
    """Return a multiplier and shift that divide by a positive count (reciprocal_scale
    of the spec).
    """
    _, exponent = torch.frexp((value - 1).to(torch.float64))
    k = torch.where(value == 1, 0, exponent).to(torch.int64)
    return torch.div(((1 << 30) + 1) << k, value, rounding_mode="floor"), 30 + k
