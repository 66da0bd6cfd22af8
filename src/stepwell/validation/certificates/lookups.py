"""Transfer functions of `argmax`, `argmin` and similar index results, and of casts with a scale."""

from typing import Any

import torch
from torch import Tensor

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.dtypes import f32
from stepwell.validation.certificates.field import digest
from stepwell.validation.certificates.operators import handles
from stepwell.validation.certificates.shadows import EXACT_STEPS, STEPS, Call, is_shadow, rows


@handles("argmax", "argmin")
def _place_of_greatest(call: Call) -> Any:
    axis, numbers = call.option("dim", 1), call.reading.numbers(call.args[0])
    if axis is None or not numbers.dim():
        return NotImplemented
    name = call.name.removeprefix("arg")
    found = digest(f"place of {name}", rows(numbers, axis % numbers.dim()))
    return call.made(found.unsqueeze(axis) if call.option("keepdim", 2) else found)


def _greatest_and_place(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)


def _least_and_place(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)


STEPS.update(max=_greatest_and_place, min=_least_and_place)
EXACT_STEPS.update(("max", "min"))


def _quantization(args: tuple[Any, ...]) -> Quantization | None:
    """Return the quantized type of a cast's arguments: x, scale, zero, an axis, low, high, dtype.

    None if its scale or zero point is not a known number.
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
def _quantize(call: Call) -> Any:
    stored = _quantization(call.args)
    return NotImplemented if stored is None or call.kwargs else quantize(call.args[0], stored)


@handles("dequantize_per_tensor", "dequantize_per_channel")
def _dequantize(call: Call) -> Any:
    stored = _quantization(call.args)
    is_plain = call.kwargs.get("out_dtype") in (None, torch.float32)
    return dequantize(call.args[0], stored) if stored and is_plain else NotImplemented
