"""`cortex_m::quantize_per_tensor` and `dequantize_per_tensor`, in float32 like the runtime."""

from __future__ import annotations

from stepwell.ir.compat.torch.lazy_imports import torch


def quantize_per_tensor(
    x: torch.Tensor, *, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> torch.Tensor:
    """Quantize float32 to integers: nearbyint(x · (1/scale)) + zero_point, clamped to [low, high].

    The reciprocal is computed in float32, and ties round to even. As on Arm's cores, a number of
    steps saturates at 32 bits, NaN is 0 steps, and the sum with the zero point wraps.
    """
    inverse = torch.ones((), dtype=torch.float32) / torch.tensor(scale, dtype=torch.float32)
    steps = torch.round(x.to(torch.float32) * inverse).double().nan_to_num(nan=0.0)
    whole = steps.clamp(-(1 << 31), (1 << 31) - 1).long() + zero_point
    return ((whole + (1 << 31)) % (1 << 32) - (1 << 31)).clamp(low, high).to(dtype)


def dequantize_per_tensor(x: torch.Tensor, *, scale: float, zero_point: int) -> torch.Tensor:
    """Dequantize integers to float32: (x − zero_point) · scale."""
    return (x.to(torch.int32) - zero_point).to(torch.float32) * torch.tensor(
        scale, dtype=torch.float32
    )
