"""Block-scaled arithmetic, bit for bit as in the TOSA 1.1 reference model.

A block-scaled tensor is a pair: ``codes``, uint8, one payload code per element,
shape ``[..., C]``; and ``scales``, uint8, one E8M0 code for each block of 32
elements of the last axis, shape ``[..., C / 32]``.

The cast, with ``emax`` and ``max`` of the payload::

    e = floor(log2(amax)) - emax
    if round(amax / 2**e) > max: e += 1      # rounded on the unbounded grid
    e = clamp(e, -127, 127)
    value = clip(round(x / 2**e), lowest, max)

Rounding is to nearest, ties to even.  A block of zeros has e = -127; one with an inf or a NaN has
the scale NaN.  This is the rule of the specification model and neither torchao's RCEIL nor, for
fp8e4m3, its EVEN.

All functions take and return torch tensors and are vectorized.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stepwell.dialects.tosa_mxfp.payloads import BLOCK, SCALE_BIAS, SCALE_NAN, Payload


def _exponent(x: Tensor) -> Tensor:
    """Compute floor(log2(|x|)) of float64 ``x`` as int64; -1023 for zero.

    Every finite float32 is a normal float64, so the exponent field is the result. (torch.frexp and
    torch.ldexp take ten times as long.)
    """
    return ((x.view(torch.int64) >> 52) & 0x7FF) - 1023


def _power_of_two(exponent: Tensor) -> Tensor:
    """Compute 2**exponent as float64, for int64 exponents in [-1022, 1023]."""
    return ((exponent + 1023) << 52).view(torch.float64)


def _round_to_grid(x: Tensor, payload: Payload) -> Tensor:
    """Round float64 ``x`` to the payload's grid, extended without an upper bound."""
    step = _exponent(x).clamp_(min=payload.minimum_exponent) - payload.mantissa_bits
    return (x * _power_of_two(-step)).round_().mul_(_power_of_two(step))


def cast_to_block_scaled(x: Tensor, payload: Payload) -> tuple[Tensor, Tensor]:
    """Quantize ``x`` along its last axis, which must be a multiple of 32.

    ``x`` is ``[..., C]`` of a floating type; returns codes ``[..., C]`` and scales
    ``[..., C / 32]``, both uint8 (CAST_TO_BLOCK_SCALED).
    """
    blocks = x.to(torch.float64).unflatten(-1, (-1, BLOCK))
    magnitude = blocks.abs().amax(dim=-1, keepdim=True)
    finite = torch.isfinite(magnitude)
    blocks = torch.where(finite, blocks, 0.0)
    magnitude = torch.where(finite, magnitude, 0.0)

    scale = _exponent(magnitude).clamp_(min=-SCALE_BIAS) - payload.maximum_exponent
    rounded = _round_to_grid(magnitude * _power_of_two(-scale), payload)
    scale = scale + (rounded > payload.maximum)
    scale = scale.clamp_(-SCALE_BIAS, SCALE_BIAS)

    values = _round_to_grid(blocks * _power_of_two(-scale), payload)
    codes = encode(values.clamp_(payload.lowest, payload.maximum), payload)
    codes.masked_fill_(~finite, payload.nan_code)
    scales = (scale + SCALE_BIAS).masked_fill_(~finite, SCALE_NAN)
    return codes.flatten(-2), scales.squeeze(-1).to(torch.uint8)


def encode(values: Tensor, payload: Payload) -> Tensor:
    """Encode ``values``, which must be values of the payload type, as codes (uint8)."""
    if payload.is_fixed_point:
        return (values * 2**payload.mantissa_bits).to(torch.int8).view(torch.uint8)
    if payload.torch_dtype is not None:
        return values.to(torch.float32).to(payload.torch_dtype).view(torch.uint8)
    # The top bits of a normal float64 are sign, exponent and mantissa already. A subnormal of the
    # payload is made normal by adding the smallest normal number, whose field is 1.
    bits = values.abs().to(torch.float64)
    subnormal = bits < 2.0**payload.minimum_exponent
    bits = torch.where(subnormal, bits + 2.0**payload.minimum_exponent, bits).view(torch.int64)
    code = (bits >> (52 - payload.mantissa_bits)) - (
        (1023 + payload.minimum_exponent - 1) << payload.mantissa_bits
    )
    code = code - (subnormal.to(torch.int64) << payload.mantissa_bits)
    return (code | (torch.signbit(values).to(torch.int64) << (payload.bits - 1))).to(torch.uint8)


def decode(codes: Tensor, payload: Payload) -> Tensor:
    """Decode payload ``codes`` (uint8), one code per element, to float32."""
    if payload.is_fixed_point:
        return codes.view(torch.int8).to(torch.float32) / 2**payload.mantissa_bits
    if payload.torch_dtype is not None:
        return codes.view(payload.torch_dtype).to(torch.float32)
    return _table_of(payload)[codes.to(torch.int64) & ((1 << payload.bits) - 1)]


def _table_of(payload: Payload) -> Tensor:
    codes = torch.arange(1 << payload.bits, dtype=torch.int32)
    field = (codes >> payload.mantissa_bits) & ((1 << payload.exponent_bits) - 1)
    mantissa = codes & ((1 << payload.mantissa_bits) - 1)
    mantissa = mantissa + ((field > 0).to(torch.int32) << payload.mantissa_bits)
    exponent = field.clamp(min=1) - 1 + payload.minimum_exponent - payload.mantissa_bits
    magnitude = torch.ldexp(mantissa.to(torch.float32), exponent)
    return torch.where(codes >> (payload.bits - 1) == 1, -magnitude, magnitude)


def scale_values(scales: Tensor) -> Tensor:
    """Decode E8M0 ``scales`` to float32: powers of two from 2**-127, or NaN."""
    values = torch.ldexp(
        torch.ones(scales.shape, dtype=torch.float64), scales.to(torch.int32) - SCALE_BIAS
    ).to(torch.float32)
    return torch.where(scales == SCALE_NAN, torch.nan, values)


def cast_from_block_scaled(
    codes: Tensor, scales: Tensor, payload: Payload, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Dequantize a block-scaled tensor to ``[..., C]`` (CAST_FROM_BLOCK_SCALED)."""
    blocks = decode(codes, payload).unflatten(-1, (-1, BLOCK))
    return (blocks * scale_values(scales).unsqueeze(-1)).flatten(-2).to(dtype)


def fake_quantize(x: Tensor, payload: Payload) -> Tensor:
    """Convert ``x`` to the payload and back, in ``x``'s type."""
    return cast_from_block_scaled(*cast_to_block_scaled(x, payload), payload, x.dtype)
