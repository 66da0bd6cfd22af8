"""Ahead-of-time arithmetic: from real scales to the integer parameters of CMSIS-NN's kernels.

All functions work on numbers, not on IR. Sources: CMSIS-NN's `arm_nnfunctions.h` (parameter
ranges), gemmlowp (quantized multipliers), ExecuTorch's `cortex_m` operator library (argument
conventions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from stepwell.dialects.cmsis.kernels.elementwise import LEFT_SHIFT
from stepwell.ir.compat.torch.lazy_imports import torch

Q31_ONE = 1 << 31
PROBABILITY_SCALE, PROBABILITY_ZERO_POINT = 1.0 / 256.0, -128
"""The quantization of probabilities that CMSIS-NN's kernels compute."""
SHIFT_RANGE = (-31, 30)
"""The shifts for which `arm_nn_requantize` is defined."""


@dataclass(frozen=True)
class Multiplier:
    """A real factor as `multiplier · 2^(shift − 31)`, |multiplier| in [2³⁰, 2³¹) or 0."""

    multiplier: int
    shift: int

    @property
    def real(self) -> float:
        """Return the factor that the kernel applies."""
        return math.ldexp(self.multiplier, self.shift - 31)

    def negated(self) -> Multiplier:
        """Return the factor with the opposite sign."""
        return Multiplier(-self.multiplier, self.shift)


@lru_cache(maxsize=1 << 16)
def quantize_multiplier(factor: float) -> Multiplier:
    """Return the `Multiplier` closest to a non-negative real factor; 0 for 0."""
    if factor == 0.0:
        return Multiplier(0, 0)
    mantissa, shift = math.frexp(factor)
    fixed = round(mantissa * Q31_ONE)
    if fixed == Q31_ONE:
        fixed //= 2
        shift += 1
    return Multiplier(fixed, shift)


@dataclass(frozen=True)
class AddParameters:
    """The three requantizations of `arm_elementwise_add_s8`."""

    first: Multiplier
    second: Multiplier
    output: Multiplier


def add_parameters(
    first_scale: float, second_scale: float, output_scale: float, coefficient: float = 1.0
) -> AddParameters:
    """Compute the parameters of `first + coefficient · second`; subtraction has coefficient −1.

    Both operands are rescaled to twice the larger scale with 20 bits of headroom, then to the
    output's scale.
    """
    second_real = abs(coefficient) * second_scale
    common = 2 * max(first_scale, second_real)
    second = quantize_multiplier(second_real / common)
    return AddParameters(
        quantize_multiplier(first_scale / common),
        second.negated() if coefficient < 0 else second,
        quantize_multiplier(common / (output_scale * (1 << LEFT_SHIFT))),
    )


def kernel_sum(
    weight: torch.Tensor, bias: torch.Tensor | None, input_offset: int, filter_offset: int
) -> torch.Tensor:
    """Compute int32 [1, N]: `input_offset · Σₖ (w[n, k] + filter_offset) + bias[n]`, wrapping as
    int32.
    """
    rows = (weight.to(torch.int64) + filter_offset).sum(dim=1) * input_offset
    if bias is not None:
        rows = rows + bias.reshape(-1).to(torch.int64)
    return rows.to(torch.int32).reshape(1, -1)


def accumulator_bounds(
    weight_rows: torch.Tensor,
    bias: torch.Tensor | None,
    input_low: int,
    input_high: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the exact int64 (lowest, highest) accumulator of every output row from the actual
    weights.

    `weight_rows` is [N, K] with the filter offset added. The inputs, with their offset added, are
    in [input_low, input_high], which must contain 0 if padding can occur.
    """
    positive = weight_rows.clamp(min=0).sum(dim=1, dtype=torch.int64)
    negative = weight_rows.sum(dim=1, dtype=torch.int64) - positive
    low = positive * input_low + negative * input_high
    high = positive * input_high + negative * input_low
    if bias is not None:
        low, high = low + bias.reshape(-1), high + bias.reshape(-1)
    return low, high


def offset_rows(weight_rows: torch.Tensor, filter_offset: int) -> torch.Tensor:
    """Add the filter offset to int8 weight rows, in integers that are wide enough for the sums."""
    return weight_rows.to(torch.int16) + filter_offset if filter_offset else weight_rows


@dataclass(frozen=True)
class RowOverflow:
    """An output row that overflows int32 for some input, in its sum or when the sum is
    scaled up.
    """

    row: int
    low: int
    high: int
    shift: int

    @property
    def in_sum(self) -> bool:
        """Whether the accumulator itself overflows, before it is scaled."""
        return self.low < -Q31_ONE or self.high >= Q31_ONE


def row_overflows(
    weight_rows: torch.Tensor,
    bias: torch.Tensor | None,
    input_low: int,
    input_high: int,
    shifts: Sequence[int],
) -> list[RowOverflow]:
    """List every row that overflows; `shifts` has one entry, or one for each row."""
    low, high = accumulator_bounds(weight_rows, bias, input_low, input_high)
    lefts = torch.tensor(shifts, dtype=torch.int64).clamp(min=0)
    reach = torch.maximum(low.abs(), high.abs())
    bad = (low < -Q31_ONE) | (high >= Q31_ONE) | (reach >= Q31_ONE >> lefts)
    if not bool(bad.any()):
        return []
    spread = lefts.expand(bad.shape)
    return [
        RowOverflow(row, int(low[row]), int(high[row]), int(spread[row]))
        for row in bad.nonzero().flatten().tolist()
    ]


def requantize_overflows(low: int, high: int, scale: Multiplier) -> bool:
    """Whether `arm_nn_requantize` of a value in [low, high] overflows int32 in a shift
    or product.
    """
    reach = max(abs(low), abs(high))
    return reach << max(scale.shift, 0) >= Q31_ONE
