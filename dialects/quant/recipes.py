"""Derived weights that are the stored integers of a real weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization, storage_dtype
from stepwell.ir.dtypes import f32
from stepwell.ir.on_demand import torch
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
    """The integers of a real weight under a quantisation given as plain numbers."""
    held = Quantization(
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
        return torch.empty_like(weight, dtype=storage_dtype(held))
    return quantize(weight, held)


@recipe("quant.reals")
def reals(stored: torch.Tensor, **parameters: Any) -> torch.Tensor:
    """The float32 values of stored integers, under a quantisation given as plain numbers."""
    if stored.is_meta:
        return torch.empty_like(stored, dtype=torch.float32)
    blocks = tuple((axis, block) for axis, block in parameters.pop("blocks"))
    lists = {name: tuple(parameters.pop(name)) for name in ("scales", "zero_points", "grid")}
    return dequantize(stored, Quantization(expressed=f32, blocks=blocks, **lists, **parameters))


def store_parameters(held: Quantization) -> dict[str, object]:
    """The keyword parameters of both recipes for a quantisation."""
    return {
        "bits": held.bits,
        "signed": held.signed,
        "low": held.low,
        "high": held.high,
        "scales": list(held.scales),
        "zero_points": list(held.zero_points),
        "blocks": [list(pair) for pair in held.blocks],
        "grid": list(held.grid),
        "sub_channel": held.sub_channel,
    }
