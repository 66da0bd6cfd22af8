"""XNNPACK's arithmetic on quantized numbers, bit for bit.

At run time a statically quantized value is the tensor of its stored integers; a dynamically
quantized one is a `DynamicTensor`. Scales are float32 and every operation rounds to float32, as in
the kernels. Sources: `src/microparams-init.c`, `src/xnnpack/quantization.h` and
`src/xnnpack/reference-utils.h` of XNNPACK.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute

from stepwell.dialects.quant.types import Quantization, quantization, storage_dtype
from stepwell.ir.compat.torch.lazy_imports import torch


@dataclass(frozen=True)
class DynamicTensor:
    """int8 numbers with a scale and zero point for each token, broadcastable against them."""

    stored: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor

    @property
    def real(self) -> torch.Tensor:
        """The real numbers that it stands for, in float32."""
        return (self.stored.float() - self.zero_point) * self.scale


def parameters(type_: Attribute) -> Quantization:
    """Return the parameters of a quantized tensor type."""
    type_quantization = quantization(type_)
    assert type_quantization is not None, f"{type_} is not quantized"
    return type_quantization


def single(value: float) -> torch.Tensor:
    """Return a number as a scalar tensor in float32."""
    return torch.tensor(value, dtype=torch.float32)


def real(stored: torch.Tensor, held: Quantization) -> torch.Tensor:
    """Compute `(stored − zero_point) · scale` in float32."""
    return (stored.float() - held.zero_point) * single(held.scale)


def saturate(number: torch.Tensor, held: Quantization) -> torch.Tensor:
    """Clamp integers to the range of the storage."""
    low, high = held.default_range
    return number.clamp(low, high).to(storage_dtype(held))


def quantize_round_then_shift(value: torch.Tensor, held: Quantization) -> torch.Tensor:
    """Compute `round(value / scale) + zero_point`, as the conversion kernels do.

    Those of float16 store 1 / scale in float16 (`xnn_f16_qs8_cvt_params`).
    """
    steps = (1.0 / single(held.scale)).to(value.dtype).float()
    scaled = value.float() * steps
    return saturate(torch.round(scaled) + held.zero_point, held)


def quantize_shift_then_round(value: torch.Tensor, held: Quantization) -> torch.Tensor:
    """Compute `round(value / scale + zero_point)`, as the table-based kernels do. NaN becomes 0."""
    scaled = value.float() * (1.0 / single(held.scale)) + held.zero_point
    return saturate(torch.round(torch.nan_to_num(scaled, nan=0.0)), held)


def requantize(accumulator: torch.Tensor, scale: torch.Tensor, held: Quantization) -> torch.Tensor:
    """Multiply an int32 accumulator by a float32 scale, round to nearest even, then add the zero
    point.

    Args:
        accumulator: integers in an integer or float64 tensor.
        scale: float32, broadcastable.
        held: the result's parameters.
    """
    scaled = accumulator.to(torch.int64).float() * scale
    return saturate(torch.round(scaled.clamp(-(2.0**31), 2.0**31)).double() + held.zero_point, held)


def clamp_stored(
    stored: torch.Tensor, held: Quantization, limits: tuple[float, float] | None
) -> torch.Tensor:
    """Clamp stored integers to real limits, which are quantized first."""
    if limits is None:
        return stored
    low, high = (quantized_limit(limit, held) for limit in limits)
    return stored.clamp(low, high)


def quantized_limit(limit: float, held: Quantization) -> int:
    """Quantize the limit of a clamp."""
    least, most = held.default_range
    scaled = float(torch.round(single(limit) / single(held.scale) + held.zero_point))
    return int(min(max(scaled, least), most))


def shift_right_rounding(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Compute `floor(value / 2**bits + ½)` of int64 numbers."""
    return (value + (1 << (bits - 1))) >> bits


def quantize_tokens(value: torch.Tensor, count: int) -> DynamicTensor:
    """Quantize each token by a scale and zero point of its own; `count` last axes form a token."""
    axes = tuple(range(value.dim() - count, value.dim()))
    given = value.float()
    low = given.amin(axes, keepdim=True).clamp(max=0.0)
    high = given.amax(axes, keepdim=True).clamp(min=0.0)
    steps = torch.where(low == high, single(1.0), single(255.0) / (high - low))
    bottom, top = low * steps, high * steps
    from_bottom = (-128.0 + bottom) + (127.0 + top) > 0
    zero = torch.where(from_bottom, -128.0 - bottom, 127.0 - top).clamp(-128.0, 127.0)
    zero_point = torch.round(zero)
    stored = (torch.round(given * steps) + zero_point).clamp(-128, 127).to(torch.int8)
    return DynamicTensor(stored, 1.0 / steps, zero_point.to(torch.int32))
