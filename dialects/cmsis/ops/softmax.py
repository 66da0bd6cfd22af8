"""Softmax: gemmlowp's fixed-point kernel `arm_softmax_s8`, its parameters, and the operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.irdl import operand_def, prop_def

from stepwell.dialects.cmsis.arithmetic import (
    PROBABILITY_SCALE,
    PROBABILITY_ZERO_POINT,
    Q31_ONE,
    Multiplier,
    quantize_multiplier,
)
from stepwell.dialects.cmsis.kernels.fixed_point import (
    INT32_MAX,
    INT32_MIN,
    Integers,
    divide_by_power_of_two,
    doubling_high_mult,
    wrap32,
)
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    int8_problems,
    multiplier_problems,
    operator,
    per_tensor,
    result_problems,
    zero_point_problems,
)
from stepwell.ir.axes.forms import along_rows, mapped
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.types import dims

SOFTMAX_INTEGER_BITS = 5
SOFTMAX_SAFE_TOTAL = 1 << 28
"""The sum of exponentials (Q12.19) from which on the exponent of its reciprocal is negative."""

ACCUM_BITS = 12
"""The integer bits of the accumulator of the sum of exponentials."""

_EXP_MINUS_EIGHTH = 1895147668
_ONE_THIRD = 715827883
_EXP_STEPS = (
    (24, 1672461947),
    (25, 1302514674),
    (26, 790015084),
    (27, 290630308),
    (28, 39332535),
    (29, 720401),
    (30, 242),
)
"""(bit of the remainder, e^(−2^k) in Q31) for k = −2 … 4: gemmlowp's barrel shifter."""

_48_OVER_17 = 1515870810
_MINUS_32_OVER_17 = -1010580540


@dataclass(frozen=True)
class SoftmaxParameters:
    """The parameters of `arm_softmax_s8`: the scaling of logit differences, and the least
    difference.
    """

    input: Multiplier
    diff_min: int


def softmax_parameters(input_scale: float) -> SoftmaxParameters:
    """Compute the parameters for logits of a scale (softmax's beta is 1)."""
    factor = min(input_scale * (1 << (31 - SOFTMAX_INTEGER_BITS)), float(Q31_ONE - 1))
    scaled = quantize_multiplier(factor)
    span = ((1 << SOFTMAX_INTEGER_BITS) - 1) * (1 << (31 - SOFTMAX_INTEGER_BITS))
    return SoftmaxParameters(scaled, -math.floor(math.ldexp(span, -scaled.shift)))


def softmax_row_is_safe(row: int) -> bool:
    """Whether no row of this length can reach the sum at which the kernel is undefined.

    Each entry adds at most 2³¹ / 2¹² to the sum, when all entries are equal.
    """
    return row * ((Q31_ONE - 1 + (1 << 11)) >> 12) < SOFTMAX_SAFE_TOTAL


@operator
class Softmax(CmsisOp):
    """Softmax over the last dimension by the kernel `arm_softmax_s8`."""

    name = "cmsis.softmax"
    IGNORES_DIM_ORDER: ClassVar[bool] = True
    FAMILY: ClassVar[Family | None] = "distribution"
    input = operand_def(TensorType)
    dim = prop_def(IntegerAttr)
    input_zero_point = prop_def(IntegerAttr)
    output_zero_point = prop_def(IntegerAttr)
    input_multiplier = prop_def(IntegerAttr)
    input_shift = prop_def(IntegerAttr)
    diff_min = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "out")
        shape = dims(self.input.type)
        yield from result_problems(self, shape)
        if self.number("dim") not in (-1, len(shape) - 1):
            yield f"dim {self.number('dim')} of rank {len(shape)}: the kernel takes the last"
        row = shape[-1] if shape else 1
        if isinstance(row, int) and not softmax_row_is_safe(row):
            yield f"a row of {row} can reach a sum of 2**28, where the kernel is undefined"
        if self.number("output_zero_point") != PROBABILITY_ZERO_POINT:
            yield f"output_zero_point is {self.number('output_zero_point')}; the kernel's is -128"
        yield from zero_point_problems(
            self, input_zero_point=(self.input, 1), output_zero_point=(self.out, 1)
        )
        out, tensor = per_tensor(self.out), per_tensor(self.input)
        if out is not None and out.scale != PROBABILITY_SCALE:
            yield f"the result has scale {out.scale}; the kernel's is 1/256"
        wanted = None if tensor is None else softmax_parameters(tensor.scale)
        yield from multiplier_problems(
            "input", self.multiplier("input"), wanted.input if wanted else None
        )
        if wanted is not None and wanted.diff_min != self.number("diff_min"):
            yield f"diff_min is {self.number('diff_min')}, the type implies {wanted.diff_min}"

    def axis_map(self, result: int = 0) -> AxisMap | None:
        rank = len(dims(self.input.type))
        return mapped(self, along_rows(rank, (rank - 1,)))


@interprets(Softmax)
def _softmax(op: Softmax, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        softmax_s8(
            args[0],
            multiplier=op.number("input_multiplier"),
            shift=op.number("input_shift"),
            diff_min=op.number("diff_min"),
        ),
    )


def softmax_s8(x: torch.Tensor, *, multiplier: int, shift: int, diff_min: int) -> torch.Tensor:
    """int8 logits [..., N] → int8 probabilities [..., N] at scale 1/256, zero point −128.

    `multiplier` and `shift` scale a difference of two logits to Q5.26. Entries that are `diff_min`
    or more below the row's maximum give −128.
    """
    values = x.to(torch.int64)
    difference = values - values.amax(dim=-1, keepdim=True)
    counts = difference >= diff_min
    scaled = doubling_high_mult(wrap32(difference << max(shift, 0)), multiplier)
    scaled = divide_by_power_of_two(scaled, max(-shift, 0))
    exponential = exp_on_negative_values(torch.where(counts, scaled, 0))
    terms = torch.where(counts, divide_by_power_of_two(exponential, ACCUM_BITS), 0)
    total = wrap32(terms.sum(dim=-1, keepdim=True))
    headroom = _leading_zeros(total)
    reciprocal = one_over_one_plus_x(wrap32((total << headroom) - (1 << 31)))
    bits_over_unit = ACCUM_BITS - headroom + 23
    product = doubling_high_mult(reciprocal, exponential)
    result = divide_by_power_of_two(product, bits_over_unit) - 128
    return torch.where(counts, result, -128).clamp(-128, 127).to(torch.int8)


def exp_on_negative_values(value: torch.Tensor) -> torch.Tensor:
    """Compute `arm_nn_exp_on_negative_values`: e^v for v ≤ 0 in Q5.26 → Q0.31."""
    remainder = ((value & ((1 << 24) - 1)) - (1 << 24)) << 5
    x = remainder + (1 << 28)
    x2 = doubling_high_mult(x, x)
    x3 = doubling_high_mult(x2, x)
    x4 = doubling_high_mult(x2, x2)
    fourth = divide_by_power_of_two(x4, 2)
    cubic = doubling_high_mult(wrap32(fourth + x3), _ONE_THIRD)
    tail = divide_by_power_of_two(cubic + x2, 1)
    result = wrap32(_EXP_MINUS_EIGHTH + doubling_high_mult(wrap32(x + tail), _EXP_MINUS_EIGHTH))
    rest = ((value & ((1 << 24) - 1)) - (1 << 24)) - value
    for bit, factor in _EXP_STEPS:
        taken = (rest & (1 << bit)) != 0
        result = torch.where(taken, doubling_high_mult(result, factor), result)
    return torch.where(value == 0, INT32_MAX, result)


def one_over_one_plus_x(value: torch.Tensor) -> torch.Tensor:
    """Compute `arm_nn_one_over_one_plus_x_for_x_in_0_1`: 1 / (1 + v), v in Q0.31, by Newton's
    method.
    """
    total = value + INT32_MAX
    half_denominator = torch.div(total + torch.where(total >= 0, 1, -1), 2, rounding_mode="trunc")
    x = wrap32(_48_OVER_17 + doubling_high_mult(half_denominator, _MINUS_32_OVER_17))
    for _ in range(3):
        error = wrap32((1 << 29) - doubling_high_mult(half_denominator, x))
        x = wrap32(x + saturating_shift_left(doubling_high_mult(x, error), 2))
    return saturating_shift_left(x, 1)


def saturating_shift_left(value: torch.Tensor, exponent: Integers) -> torch.Tensor:
    """Compute `MUL_POW2`: value · 2^exponent, saturated to int32."""
    return (value << exponent).clamp(INT32_MIN, INT32_MAX)


def _leading_zeros(value: torch.Tensor) -> torch.Tensor:
    """Compute `__CLZ` of int32 values stored as int64."""
    unsigned = value & 0xFFFFFFFF
    zeros = torch.zeros_like(unsigned)
    for bit in range(32):
        zeros = torch.where(unsigned >= (1 << bit), 31 - bit, torch.where(unsigned == 0, 32, zeros))
    return zeros
