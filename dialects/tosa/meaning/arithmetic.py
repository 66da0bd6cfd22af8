"""Semantics of elementwise operators, comparisons, selection and casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import f8e4m3
from stepwell.dialects.tosa.meaning import c_library
from stepwell.dialects.tosa.meaning.values import (
    bounds,
    element_of,
    ignores_nan,
    is_integer,
    narrow,
    result_element,
    wide,
    zero_point,
)
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.dtypes import i1, torch_dtype

Args = Sequence[Any]


def _unsigned(x: Tensor) -> Tensor:
    """View the bits of a signed tensor as a non-negative int64 (below 64 bits)."""
    width = 8 * x.dtype.itemsize
    return x.to(torch.int64) & (2**width - 1) if width < 64 else x


def _logical_right_shift(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.int64:
        shifted = (a >> b) & ((torch.ones_like(a) << (63 - b) << 1) - 1)
        return torch.where(b == 0, a, shifted)
    return _unsigned(a) >> b.to(torch.int64)


def _right_shift(op: t.ArithmeticRightShiftOp, a: Tensor, b: Tensor) -> Tensor:
    shifted = a >> b
    if op.round.value.data:
        half = (a >> (b - 1).clamp(min=0)) & 1
        shifted = shifted + torch.where(b > 0, half, 0)
    return shifted


def _count_leading_zeros(x: Tensor) -> Tensor:
    width = 8 * x.dtype.itemsize
    if width == 64:
        upper, lower = _clz32(_unsigned((x >> 32).to(torch.int32))), _clz32(x & 0xFFFFFFFF)
        return torch.where(upper == 32, 32 + lower, upper)
    return _clz32(_unsigned(x))


def _clz32(x: Tensor) -> Tensor:
    _, exponent = torch.frexp(x.to(torch.float64))
    return torch.where(x == 0, 32, 32 - exponent)


_UNARY: dict[type[TosaOp], Callable[[Tensor], Tensor]] = {
    t.AbsOp: torch.abs,
    t.BitwiseNotOp: torch.bitwise_not,
    t.CeilOp: torch.ceil,
    t.ClzOp: _count_leading_zeros,
    t.CosOp: c_library.cos,
    t.ErfOp: c_library.erf,
    t.ExpOp: c_library.exp,
    t.FloorOp: torch.floor,
    t.IdentityOp: lambda x: x,
    t.LogOp: c_library.log,
    t.LogicalNotOp: torch.logical_not,
    t.ReciprocalOp: torch.reciprocal,
    t.RsqrtOp: torch.rsqrt,
    t.SigmoidOp: c_library.sigmoid,
    t.SinOp: c_library.sin,
    t.TanhOp: c_library.tanh,
}

_BINARY: dict[type[TosaOp], Callable[[Tensor, Tensor], Tensor]] = {
    t.AddOp: torch.add,
    t.SubOp: torch.sub,
    t.PowOp: c_library.power,
    t.BitwiseAndOp: torch.bitwise_and,
    t.BitwiseOrOp: torch.bitwise_or,
    t.BitwiseXorOp: torch.bitwise_xor,
    t.LogicalAndOp: torch.logical_and,
    t.LogicalOrOp: torch.logical_or,
    t.LogicalXorOp: torch.logical_xor,
    t.LogicalLeftShiftOp: lambda a, b: a << b,
    t.LogicalRightShiftOp: _logical_right_shift,
    t.IntDivOp: lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    t.EqualOp: torch.eq,
    t.GreaterOp: torch.gt,
    t.GreaterEqualOp: torch.ge,
}


@interprets(*_UNARY)
def _unary(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    return (narrow(_UNARY[type(op)](wide(args[0])), op),)


@interprets(*_BINARY)
def _binary(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    return (narrow(_BINARY[type(op)](wide(args[0]), wide(args[1])), op),)


@interprets(t.ArithmeticRightShiftOp)
def _arithmetic_right_shift(op: t.ArithmeticRightShiftOp, args: Args, ctx: Interpreter) -> Args:
    return (narrow(_right_shift(op, args[0], args[1]), op),)


@interprets(t.MaximumOp, t.MinimumOp)
def _extremum(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    greater = isinstance(op, t.MaximumOp)
    if ignores_nan(op):
        function = torch.fmax if greater else torch.fmin
    else:
        function = torch.maximum if greater else torch.minimum
    return (narrow(function(wide(args[0]), wide(args[1])), op),)


@interprets(t.MulOp)
def _mul(op: t.MulOp, args: Args, ctx: Interpreter) -> Args:
    a, b, shift = args
    if not is_integer(element_of(op.input1)):
        return (narrow(wide(a) * wide(b), op),)
    product = a.to(torch.int64) * b.to(torch.int64)
    amount = int(shift.reshape(-1)[0])
    if amount:
        product = (product + (1 << (amount - 1))) >> amount
    return (narrow(product, op),)


@interprets(t.NegateOp)
def _negate(op: t.NegateOp, args: Args, ctx: Interpreter) -> Args:
    x, input_zp, output_zp = args
    element = result_element(op)
    if not is_integer(element):
        return (-x,)
    value = int(zero_point(output_zp)) - (x.to(torch.int64) - int(zero_point(input_zp)))
    return (narrow(value.clamp(*bounds(element)), op),)


@interprets(t.ClampOp)
def _clamp(op: t.ClampOp, args: Args, ctx: Interpreter) -> Args:
    x = wide(args[0])
    low, high = _number(op.min_val), _number(op.max_val)
    clamped = x.clamp(low, high)
    if ignores_nan(op) and x.dtype.is_floating_point:
        clamped = torch.where(torch.isnan(x), low, clamped)
    return (narrow(clamped, op),)


def _number(attribute: object) -> int | float:
    assert isinstance(attribute, IntegerAttr | FloatAttr)
    return attribute.value.data


@interprets(t.SelectOp)
def _select(op: t.SelectOp, args: Args, ctx: Interpreter) -> Args:
    return (torch.where(args[0], args[1], args[2]),)


@interprets(t.TableOp)
def _table(op: t.TableOp, args: Args, ctx: Interpreter) -> Args:
    x, table = args
    if x.dtype == torch.int8:
        return (table[x.to(torch.int64) + 128],)
    x = x.to(torch.int64)
    index, fraction = (x >> 7) + 256, x & 0x7F
    base, following = table[index].to(torch.int64), table[index + 1].to(torch.int64)
    return (narrow((base << 7) + (following - base) * fraction, op),)


def cast(x: Tensor, source: object, target: object) -> Tensor:
    """CAST between plain element types: floats to integers round to even and saturate."""
    assert hasattr(target, "name")
    dtype = torch_dtype(target)  # pyright: ignore[reportArgumentType]
    if target == i1:
        return x != 0 if not x.dtype.is_floating_point else wide(x) != 0
    if isinstance(target, IntegerType) and x.dtype.is_floating_point:
        low, high = bounds(target)
        rounded = torch.round(x.to(torch.float64))
        whole = rounded.clamp(float(low), float(high)).to(torch.int64)
        whole = torch.where(rounded >= float(high), high, whole)
        return torch.where(torch.isnan(rounded), 0, whole).to(dtype)
    if target == f8e4m3 and x.dtype.is_floating_point:
        # Overflow gives NaN, as in the reference model.
        return wide(x).to(dtype)
    return wide(x).to(dtype)
