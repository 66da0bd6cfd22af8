"""CMSIS-NN's fixed-point primitives (`arm_nnsupportfunctions.h`) on int64 tensors.

Values are int64 and are wrapped to int32 wherever the C code stores an `int32_t`.
"""

from __future__ import annotations

from typing import TypeAlias

from stepwell.ir.compat.torch.lazy_imports import torch

Integers: TypeAlias = "int | torch.Tensor"
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def wrap32(value: torch.Tensor) -> torch.Tensor:
    """Wrap an int64 tensor to int32 in two's complement; the dtype stays int64."""
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def doubling_high_mult_no_sat(a: torch.Tensor, b: Integers) -> torch.Tensor:
    """Compute `arm_nn_doubling_high_mult_no_sat`: (a·b + 2³⁰) >> 31, as int32."""
    return wrap32((a * b + (1 << 30)) >> 31)


def doubling_high_mult(a: torch.Tensor, b: Integers) -> torch.Tensor:
    """Compute `arm_nn_doubling_high_mult`: round half away from zero, saturate INT32_MIN².

    The C code adds 2³⁰ (1 − 2³⁰ when the signs differ) and divides by 2³¹ truncating.
    """
    other = b if isinstance(b, torch.Tensor) else torch.full_like(a, b)
    product = a * other
    differ = (a < 0) ^ (other < 0)
    nudged = product + torch.where(differ, 1 - (1 << 30), 1 << 30)
    result = torch.div(nudged, 1 << 31, rounding_mode="trunc")
    saturates = (a == INT32_MIN) & (other == INT32_MIN)
    return torch.where(saturates, INT32_MAX, result)


def divide_by_power_of_two(value: torch.Tensor, exponent: Integers) -> torch.Tensor:
    """Compute `arm_nn_divide_by_power_of_two`: value / 2^exponent, rounded half away from zero."""
    power = exponent if isinstance(exponent, torch.Tensor) else torch.tensor(exponent)
    mask = (torch.ones_like(power) << power) - 1
    quotient = value >> power
    threshold = (mask >> 1) + (quotient < 0).to(torch.int64)
    return quotient + ((value & mask) > threshold).to(torch.int64)


def requantize(value: torch.Tensor, multiplier: Integers, shift: Integers) -> torch.Tensor:
    """Compute `arm_nn_requantize` (default build): value · multiplier · 2^(shift−31), rounded
    twice.

    `value` is int64 with int32 numbers. `multiplier` and `shift` are numbers, or int64 tensors that
    broadcast against it (per-channel requantization, channels last).
    """
    if isinstance(shift, torch.Tensor):
        left: Integers = shift.clamp(min=0)
        right: Integers = (-shift).clamp(min=0)
    else:
        left, right = max(shift, 0), max(-shift, 0)
    scaled = doubling_high_mult_no_sat(wrap32(value << left), multiplier)
    return divide_by_power_of_two(scaled, right)


def to_int8(value: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Clamp and cast to int8, the last step of every kernel."""
    return value.clamp(low, high).to(torch.int8)
