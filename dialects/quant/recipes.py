"""Derived weights that are the stored integers of a real weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.types import Quantization
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
        from stepwell.dialects.quant.types import storage_dtype

        return torch.empty_like(weight, dtype=storage_dtype(held))
    return quantize(weight, held)


def store_parameters(held: Quantization) -> dict[str, object]:
    """The keyword parameters of `quant.store` for a quantisation."""
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
