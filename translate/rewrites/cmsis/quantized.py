"""What CMSIS-NN's kernels ask of quantised layers: static shapes, shifts, sums that fit int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    row_overflows,
)
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import is_static


def not_fixed(*values: SSAValue) -> Refusal | None:
    """Most of the library's operators resize nothing: their shapes are known ahead of time."""
    if all(is_static(value.type) for value in values):
        return None
    return Refusal("its shape is known only at run time, and the operator resizes nothing")


def overflow(
    rows: torch.Tensor,
    bias: torch.Tensor | None,
    given: Quantization,
    multipliers: Sequence[Multiplier],
    padded: bool,
) -> Refusal | None:
    """Why some input would overflow an accumulator or its requantisation, from actual weights.

    `rows` is [N, K], filter offset added. A padded cell contributes 0.
    """
    low_in, high_in = given.low - given.zero_point, given.high - given.zero_point
    if padded:
        low_in, high_in = min(low_in, 0), max(high_in, 0)
    shifts = [scale.shift for scale in multipliers]
    for found in row_overflows(rows, bias, low_in, high_in, shifts):
        reach = f"{found.low} … {found.high}"
        if found.in_sum:
            return Refusal(f"row {found.row} can accumulate {reach}, past int32")
        return Refusal(
            f"row {found.row} is scaled up by 2^{found.shift}, which takes {reach} past int32"
        )
    return None


def multipliers(
    given: Quantization, weight: Quantization, result: Quantization
) -> tuple[Multiplier, ...] | Refusal:
    """One multiplier for each weight scale; all shifts must be ones the kernel defines."""
    found = tuple(
        quantize_multiplier(given.scale * scale / result.scale) for scale in weight.scales
    )
    return shift_refusal(found) or found


def shift_refusal(found: Sequence[Multiplier]) -> Refusal | None:
    """Why a factor is beyond what `arm_nn_requantize` can shift by, or None."""
    for scale in found:
        if not -31 <= scale.shift <= 30:
            return Refusal(
                f"a factor of {scale.real:g} needs a shift of {scale.shift}, outside -31 … 30"
            )
    return None


def pair(value: Any) -> tuple[int, int]:
    """An `int[2]` argument, of which torch lets one number stand for both."""
    items = cast("list[int]", value if isinstance(value, list) else [value])
    return (items[0], items[0]) if len(items) == 1 else (items[0], items[1])
