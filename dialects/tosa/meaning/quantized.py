"""Semantics of RESCALE, the only operator that changes the scale of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import IntegerType

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import bounds, element_of, narrow, result_element
from stepwell.ir.declared.interpretation import Interpreter, interprets

Args = Sequence[Any]


def apply_scale_32(value: Tensor, multiplier: Tensor, shift: Tensor, double: bool) -> Tensor:
    """Compute value * multiplier / 2**shift, rounded half up, in 64 bits (apply_scale_32 of the
    spec).
    """
    rounding = torch.ones_like(shift) << (shift - 1)
    if double:
        extra = torch.where(value >= 0, 1 << 30, -(1 << 30))
        rounding = rounding + torch.where(shift > 31, extra, 0)
    return (value * multiplier + rounding) >> shift


def _signed_or_not(x: Tensor, element: IntegerType, unsigned: bool) -> Tensor:
    return x.to(torch.int64) & (2**element.width.data - 1) if unsigned else x.to(torch.int64)


@interprets(t.RescaleOp)
def _rescale(op: t.RescaleOp, args: Args, ctx: Interpreter) -> Args:
    x, multiplier, shift, input_zp, output_zp = args
    source, target = element_of(op.input), result_element(op)
    assert isinstance(source, IntegerType) and isinstance(target, IntegerType)
    taken, given = bool(op.input_unsigned.value.data), bool(op.output_unsigned.value.data)
    value = _signed_or_not(x, source, taken) - _signed_or_not(input_zp, source, taken)
    double = op.rounding_mode.data == "DOUBLE_ROUND" and bool(op.scale32.value.data)
    scaled = apply_scale_32(value, multiplier.to(torch.int64), shift.to(torch.int64), double)
    result = scaled + _signed_or_not(output_zp, target, given)
    result = result.clamp(*bounds(target, given))
    if given:  # unsigned values are stored in the signed type of their width
        low, high = bounds(target)
        result = torch.where(result > high, result - 2 * (high + 1), result)
        assert low < 0
    return (narrow(result.reshape(x.shape), op),)
