"""`arm_elementwise_add_s8`, `arm_elementwise_mul_s8`, ExecuTorch's float division, and tables."""

from __future__ import annotations

from stepwell.dialects.cmsis.kernels.fixed_point import requantize, to_int8, wrap32
from stepwell.ir.compat.torch.lazy_imports import torch

LEFT_SHIFT = 20
"""The number of bits by which an addition's operands are scaled up before requantization (int8
kernels).
"""


def elementwise_add_s8(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    a_offset: int,
    a_multiplier: int,
    a_shift: int,
    b_offset: int,
    b_multiplier: int,
    b_shift: int,
    output_offset: int,
    output_multiplier: int,
    output_shift: int,
    activation: tuple[int, int] = (-128, 127),
    left_shift: int = LEFT_SHIFT,
) -> torch.Tensor:
    """Add two int8 tensors that broadcast. A negated multiplier subtracts."""
    left = wrap32((a.to(torch.int64) + a_offset) << left_shift)
    right = wrap32((b.to(torch.int64) + b_offset) << left_shift)
    total = wrap32(
        requantize(left, a_multiplier, a_shift) + requantize(right, b_multiplier, b_shift)
    )
    return to_int8(requantize(total, output_multiplier, output_shift) + output_offset, *activation)


def elementwise_mul_s8(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    a_offset: int,
    b_offset: int,
    output_offset: int,
    output_multiplier: int,
    output_shift: int,
    activation: tuple[int, int] = (-128, 127),
) -> torch.Tensor:
    """Multiply two int8 tensors that broadcast."""
    product = (a.to(torch.int64) + a_offset) * (b.to(torch.int64) + b_offset)
    scaled = requantize(product, output_multiplier, output_shift)
    return to_int8(scaled + output_offset, *activation)


def elementwise_div(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    a_zero_point: int,
    b_zero_point: int,
    output_zero_point: int,
    output_scale: float,
) -> torch.Tensor:
    """Divide int8 or int16 tensors as `cortex_m::quantized_div` does: in float32.

    A zero denominator gives 0. The product with `output_scale` (scale_a / (scale_b · scale_out)) is
    rounded half away from zero. CMSIS-NN has no integer division.
    """
    numerator = (a.to(torch.int32) - a_zero_point).to(torch.float32)
    denominator = (b.to(torch.int32) - b_zero_point).to(torch.float32)
    quotient = torch.where(denominator != 0, numerator / denominator, torch.zeros(()))
    scaled = quotient * torch.tensor(output_scale, dtype=torch.float32)
    magnitude = scaled.abs().to(torch.float64)
    rounded = torch.copysign(torch.floor(magnitude + 0.5), scaled.to(torch.float64))
    limits = torch.iinfo(a.dtype)
    result = rounded.to(torch.int64) + output_zero_point
    return result.clamp(limits.min, limits.max).to(a.dtype)


def activation_table_s8(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Look up entry x + 128 of the int8 `table` [256] for each element
    (`cortex_m::quantized_activation`).
    """
    return table[(x.to(torch.int64) + 128)]
