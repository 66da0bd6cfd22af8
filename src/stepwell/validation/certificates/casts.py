"""PyTorch's casts between floats and integers with a scale, as those of quantized types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.dtypes import f32
from stepwell.validation.certificates.operators import handles
from stepwell.validation.certificates.shadows import Reading, is_shadow


def _quantization(args: tuple[Any, ...]) -> Quantization | None:
    """Return the quantized type of a cast's arguments: x, scale, zero, an axis, low, high, dtype.

    None if its numbers are unknown or represent others.
    """
    _, scale, zero, *axis, low, high, of = args
    if is_shadow(scale) or is_shadow(zero) or of.itemsize > 4:
        return None
    scales = scale.reshape(-1).tolist() if isinstance(scale, Tensor) else [scale]
    zeros = zero.reshape(-1).tolist() if isinstance(zero, Tensor) else [zero]
    blocks, grid = (((axis[0], 1),), (len(scales),)) if axis else ((), ())
    info = torch.iinfo(of)
    return Quantization(info.bits, info.min < 0, low, high, f32, scales, zeros, blocks, grid)


@handles("quantize_per_tensor", "quantize_per_channel")
def _quantize(reading: Reading, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stored = _quantization(args)
    return NotImplemented if stored is None or kwargs else quantize(args[0], stored)


@handles("dequantize_per_tensor", "dequantize_per_channel")
def _dequantize(reading: Reading, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stored = _quantization(args)
    is_plain = kwargs.get("out_dtype") in (None, torch.float32)
    return dequantize(args[0], stored) if stored is not None and is_plain else NotImplemented
