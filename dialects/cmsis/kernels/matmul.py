"""`arm_fully_connected_s8`, its per-channel form, and `arm_batch_matmul_s8`."""

from __future__ import annotations

from stepwell.dialects.cmsis.kernels.fixed_point import Integers, requantize, to_int8, wrap32
from stepwell.ir.compat.torch.lazy_imports import torch


def fully_connected_s8(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    input_offset: int,
    filter_offset: int = 0,
    output_offset: int,
    multiplier: Integers,
    shift: Integers,
    activation: tuple[int, int],
) -> torch.Tensor:
    """Multiply int8 `x` [..., K] by the transpose of `weight` [N, K], add int32 `bias` [N] → int8
    [..., N].

    `multiplier` and `shift` are numbers, or int64 tensors [N] for
    `arm_fully_connected_per_channel_s8`.
    """
    accumulator = matmul_accumulator(x, input_offset, weight, filter_offset)
    if bias is not None:
        accumulator = wrap32(accumulator + bias.reshape(-1).to(torch.int64))
    return _finish(accumulator, multiplier, shift, output_offset, activation)


def fully_connected_kernel_sum_s8(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_sum: torch.Tensor,
    *,
    filter_offset: int = 0,
    output_offset: int,
    multiplier: int,
    shift: int,
    activation: tuple[int, int],
) -> torch.Tensor:
    """Compute the MVE form: raw products, plus `filter_offset`·Σx, plus int32 `kernel_sum` [1,
    N].
    """
    accumulator = matmul_accumulator(x, 0, weight, filter_offset)
    accumulator = wrap32(accumulator + kernel_sum.reshape(-1).to(torch.int64))
    return _finish(accumulator, multiplier, shift, output_offset, activation)


def batch_matmul_s8(
    lhs: torch.Tensor,
    rhs_transposed: torch.Tensor,
    *,
    lhs_offset: int,
    rhs_offset: int,
    output_offset: int,
    multiplier: int,
    shift: int,
    activation: tuple[int, int] = (-128, 127),
) -> torch.Tensor:
    """Multiply int8 `lhs` [B, M, K] by the transpose of `rhs_transposed` [B, N, K] → int8 [B, M,
    N].
    """
    accumulator = matmul_accumulator(lhs, lhs_offset, rhs_transposed, rhs_offset)
    return _finish(accumulator, multiplier, shift, output_offset, activation)


def matmul_accumulator(
    x: torch.Tensor, x_offset: int, weight: torch.Tensor, weight_offset: int
) -> torch.Tensor:
    """Compute Σₖ (x + x_offset)(w + weight_offset), wrapped to int32, as int64."""
    left = x.to(torch.float64) + x_offset
    right = weight.to(torch.float64) + weight_offset
    return wrap32((left @ right.transpose(-1, -2)).to(torch.int64))


def _finish(
    accumulator: torch.Tensor,
    multiplier: Integers,
    shift: Integers,
    output_offset: int,
    activation: tuple[int, int],
) -> torch.Tensor:
    return to_int8(requantize(accumulator, multiplier, shift) + output_offset, *activation)
