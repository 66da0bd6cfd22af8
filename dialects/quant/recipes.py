"""Derived weights of quantized programs: stored integers, integers in another layout, biases.

Names that begin with `cmsis.` are used by all targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization, storage_dtype
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32
from stepwell.ir.weights import recipe


@recipe("quant.store")
def store(
    weight: torch.Tensor,
    bits: int,
    signed: bool,
    low: int,
    high: int,
    scales: Sequence[float],
    zero_points: Sequence[int],
    blocks: Sequence[Sequence[int]],
    grid: Sequence[int],
    sub_channel: bool,
) -> torch.Tensor:
    """Quantize a real weight; the quantization is given as plain numbers."""
    quantization = Quantization(
        bits,
        signed,
        low,
        high,
        f32,
        tuple(scales),
        tuple(zero_points),
        tuple((axis, block) for axis, block in blocks),
        tuple(grid),
        sub_channel,
    )
    if weight.is_meta:
        return torch.empty_like(weight, dtype=storage_dtype(quantization))
    return quantize(weight, quantization)


@recipe("quant.reals")
def reals(stored: torch.Tensor, **parameters: Any) -> torch.Tensor:
    """Dequantize stored integers to float32; the quantization is given as plain numbers."""
    if stored.is_meta:
        return torch.empty_like(stored, dtype=torch.float32)
    blocks = tuple((axis, block) for axis, block in parameters.pop("blocks"))
    lists = {name: tuple(parameters.pop(name)) for name in ("scales", "zero_points", "grid")}
    return dequantize(stored, Quantization(expressed=f32, blocks=blocks, **lists, **parameters))


def store_parameters(quantization: Quantization) -> dict[str, object]:
    """Return a quantization as keyword parameters of the recipes `store` and `reals`."""
    return {
        "bits": quantization.bits,
        "signed": quantization.signed,
        "low": quantization.low,
        "high": quantization.high,
        "scales": list(quantization.scales),
        "zero_points": list(quantization.zero_points),
        "blocks": [list(pair) for pair in quantization.blocks],
        "grid": list(quantization.grid),
        "sub_channel": quantization.sub_channel,
    }


@recipe("cmsis.permute")
def permute(weight: torch.Tensor, permutation: Sequence[int]) -> torch.Tensor:
    """Permute the dimensions of a weight; the result is dense."""
    return weight.permute(tuple(permutation)).contiguous()


@recipe("cmsis.reshape")
def reshape(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Give a weight another shape with the same elements."""
    return weight.reshape(tuple(shape))


@recipe("cmsis.spread")
def spread(
    weight: torch.Tensor, groups: int, dilation: Sequence[int], behind: Sequence[int]
) -> torch.Tensor:
    """Insert the zeros of dilation, of the trailing rows and columns and of the other groups into a
    filter `[inputs, outputs, h, w]`.

    Args:
        weight: the filter of a transposed convolution; `outputs` are those of one group.
        groups: the number of groups; a group's outputs get zeros for the inputs of the others.
        dilation: the dilation of height and width.
        behind: the number of rows and columns of zeros to append.
    """
    inputs, outputs, *sides = weight.shape
    spans = [(side - 1) * step + 1 for side, step in zip(sides, dilation, strict=True)]
    whole = [span + more for span, more in zip(spans, behind, strict=True)]
    zeros = weight.new_zeros((groups, inputs // groups, groups, outputs, *whole))
    for at, part in enumerate(weight.chunk(groups)):
        zeros[at, :, at, :, : spans[0] : dilation[0], : spans[1] : dilation[1]] = part
    return zeros.reshape(inputs, groups * outputs, *whole)


@recipe("cmsis.expand")
def expand(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Broadcast a weight to a shape; the result is dense."""
    return weight.expand(tuple(shape)).contiguous()


@recipe("cmsis.compose")
def compose(outer: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """Compose int8 tables of 256 entries: inner table entries are indices of the outer table."""
    if outer.is_meta:
        return torch.empty_like(outer)
    return outer[inner.to(torch.int64) + 128]


@recipe("cmsis.bias")
def bias(
    values: torch.Tensor, scales: Sequence[float], unit: Sequence[float] | None = None
) -> torch.Tensor:
    """Quantize biases to int32 with the accumulators' `scales`, from reals, or from integers of
    scale `unit`.
    """
    if values.is_meta:
        return torch.empty_like(values, dtype=torch.int32)
    real = values.to(torch.float64)
    if unit is not None:
        real = real * real.new_tensor(list(unit))
    stored = torch.round(real / real.new_tensor(list(scales)))
    return stored.clamp(-(1 << 31), (1 << 31) - 1).to(torch.int32)
