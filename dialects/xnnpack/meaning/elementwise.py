"""Semantics of nodes that work on each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, cast

import numpy as np
import torch

from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.xnnpack.base import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.elementwise import (
    ELU,
    Add,
    Binary,
    Clamp,
    Convert,
    Copy,
    Divide,
    Hardswish,
    LeakyReLU,
    Maximum,
    Minimum,
    Multiply,
    PReLU,
    Square,
    Subtract,
    Unary,
)
from stepwell.dialects.xnnpack.meaning.arithmetic import (
    clamp_stored,
    parameters,
    quantize_round_then_shift,
    quantize_shift_then_round,
    quantize_tokens,
    real,
    requantize,
    saturate,
    shift_right_rounding,
    single,
)
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import element

Tensor = torch.Tensor
_UNARY: dict[type[XnnpackOp], Callable[[Any, Tensor], Tensor]] = {
    ELU: lambda op, x: torch.where(x < 0, op.number("alpha", 1.0) * torch.expm1(x), x),
    Hardswish: lambda op, x: (x / 6) * (x + 3).clamp(0, 6),
    LeakyReLU: lambda op, x: torch.nn.functional.leaky_relu(x, op.number("negative_slope", 0.0)),
    Square: lambda op, x: x * x,
}
_BINARY: dict[type[XnnpackOp], Callable[[Tensor, Tensor], Tensor]] = {
    Add: torch.add,
    Subtract: torch.sub,
    Multiply: torch.mul,
    Divide: torch.div,
    Maximum: lambda a, b: torch.where(a > b, a, b),
    Minimum: lambda a, b: torch.where(a < b, a, b),
    PReLU: lambda a, b: torch.where(a < 0, a * b, a),
}


def clamp_float(value: Tensor, op: XnnpackOp) -> Tensor:
    """Clamp a float result to the op's output range."""
    limits = op.output_range
    return value if limits is None else value.clamp(*limits)


def torch_function(node: type[Unary]) -> Callable[..., Tensor]:
    """Return the function of torch that has a node's semantics on reals."""
    return attrgetter(node.TORCH)(torch)


def _by_torch(op: Unary, value: Tensor) -> Tensor:
    return torch_function(type(op))(value, *op.MIXED)


@interprets(Unary)
def _unary(op: Unary, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    value = cast(Tensor, args[0])
    compute = _UNARY.get(type(op)) or _by_torch
    if quantization(op.input.type) is None:
        return (compute(op, value.float()).to(value.dtype),)
    given, result_parameters = parameters(op.input.type), parameters(op.result.type)
    if (
        isinstance(op, LeakyReLU)
        and (fixed := _fixed_leaky(op, value, given, result_parameters)) is not None
    ):
        return (fixed,)
    return (quantize_shift_then_round(compute(op, real(value, given)), result_parameters),)


@interprets(Copy)
def _copy(op: Copy, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0],)


@interprets(Clamp)
def _clamp(op: Clamp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    value = cast(Tensor, args[0])
    if quantization(op.input.type) is None:
        return (clamp_float(value, op),)
    given, result_parameters = parameters(op.input.type), parameters(op.result.type)
    if given == result_parameters:
        return (clamp_stored(value, result_parameters, op.output_range),)
    return (quantize_shift_then_round(clamp_float(real(value, given), op), result_parameters),)


@interprets(Convert)
def _convert(op: Convert, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    value = cast(Tensor, args[0])
    result_element = element(op.result.type)
    if isinstance(result_element, DynamicInt8Type):
        return (quantize_tokens(value, result_element.data),)
    given_held, made_held = quantization(op.input.type), quantization(op.result.type)
    if given_held is None and made_held is not None:
        if value.dtype == torch.float16 and not made_held.signed:
            # There is no kernel for this; the table's loop is used.
            return (quantize_shift_then_round(value, made_held),)
        return (quantize_round_then_shift(value, made_held),)
    if given_held is None:
        return (value.to(torch_dtype(result_element)),)
    dtype = torch.float16 if datatype(op.result.type) == "fp16" else torch.float32
    if made_held is None:
        return (real(value, given_held).to(dtype),)
    ratio = single(given_held.scale) / single(made_held.scale)
    if given_held.signed == made_held.signed and 2.0**-8 <= float(ratio) <= 2.0**7:
        factor = _multiplier(ratio)
        moved = shift_right_rounding((value.long() - given_held.zero_point) * factor, 8)
        return (saturate(moved + made_held.zero_point, made_held),)
    return (quantize_shift_then_round(real(value, given_held), made_held),)


def _multiplier(scale: Tensor) -> int:
    return int(torch.round(256.0 * scale))


def _fixed_leaky(
    op: LeakyReLU, value: Tensor, given: Quantization, made: Quantization
) -> Tensor | None:
    """Compute leaky ReLU by the kernel with factors of 8 fractional bits.

    The result is None if the factors are out of the kernel's range.
    """
    positive = single(given.scale) / single(made.scale)
    negative = positive * single(op.number("negative_slope", 0.0))
    if not 2.0**-8 <= float(positive) <= 2.0**7 or not -(2.0**7) <= float(negative) <= 2.0**7:
        return None
    moved = value.long() - given.zero_point
    factor = torch.where(moved < 0, _multiplier(negative), _multiplier(positive))
    return saturate(shift_right_rounding(moved * factor, 8) + made.zero_point, made)


@interprets(Binary)
def _binary(op: Binary, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    left, right = cast(Tensor, args[0]), cast(Tensor, args[1])
    compute = _BINARY[type(op)]
    if quantization(op.left.type) is None:
        result = compute(left.float(), right.float()).to(left.dtype)
        return (clamp_float(result, op),)
    a, b, made = (parameters(v.type) for v in (op.left, op.right, op.result))
    if isinstance(op, Add | Subtract):
        result = add_quantized(left, right, a, b, made, subtract=isinstance(op, Subtract))
    elif isinstance(op, Multiply) and op.left is op.right:
        # XNNPACK's graph optimization makes it a square, which rounds differently.
        result = quantize_shift_then_round(compute(real(left, a), real(right, b)), made)
    elif isinstance(op, Multiply):
        product = (left.long() - a.zero_point) * (right.long() - b.zero_point)
        scale = single(a.scale) * single(b.scale) / single(made.scale)
        result = requantize(product, scale, made)
    elif isinstance(op, PReLU):
        result = _prelu_quantized(left, right, a, b, made)
    else:
        result = quantize_shift_then_round(compute(real(left, a), real(right, b)), made)
    return (clamp_stored(result, made, op.output_range),)


def _prelu_quantized(
    left: Tensor, right: Tensor, a: Quantization, b: Quantization, made: Quantization
) -> Tensor:
    """Compute PReLU with one scale for values and another for products with a slope."""
    value, slope = left.long() - a.zero_point, right.long() - b.zero_point
    positive = single(a.scale) / single(made.scale)
    negative = single(a.scale) * single(b.scale) / single(made.scale)
    is_negative = (value < 0).expand(torch.broadcast_shapes(value.shape, slope.shape))
    return requantize(
        torch.where(is_negative, value * slope, value),
        torch.where(is_negative, negative, positive),
        made,
    )


def add_quantized(
    left: Tensor,
    right: Tensor,
    a: Quantization,
    b: Quantization,
    made: Quantization,
    *,
    subtract: bool,
) -> Tensor:
    """Compute `left ± right` with multipliers of 21 bits and one rounding shift."""
    scales = [np.float32(held.scale) / np.float32(made.scale) for held in (a, b)]
    exponent = int(np.frexp(max(scales))[1]) - 1
    shift = 20 - exponent
    factors = [int(np.rint(np.ldexp(scale, shift))) for scale in scales]
    if subtract:
        factors[1] = -factors[1]
    total = (left.long() - a.zero_point) * factors[0] + (right.long() - b.zero_point) * factors[1]
    return saturate(shift_right_rounding(total, shift) + made.zero_point, made)
