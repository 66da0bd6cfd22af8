"""Quantized layers on integers: operands, scales, and the rescaling of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import RoundingModeAttr
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.constants import const
from stepwell.dialects.tosa.meaning.quantized import apply_scale_32
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i1, i8, i16, i32
from stepwell.ir.rewriting.rewrite import Bound, Refusal
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.quantized.recognize import (
    Activation,
    Use,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

LEFT_SHIFT = {8: 20, 16: 15}
"""Left shift in bits of 8- or 16-bit operands of a sum, before their common scale."""

WIDTHS = {8: i8, 16: i16}
"""Element types of activations."""

SINGLE_ROUND = RoundingModeAttr("SINGLE_ROUND")
IN_UNITS = Bound(units=1, reason="integers are summed and rounded once, half up")


def width(value: SSAValue) -> int:
    """Return 16 if a float operand represents 16-bit integers, else 8."""
    maker = value.owner
    held = quantization(maker.input.type) if isinstance(maker, DequantizeCast) else None
    return 16 if held is not None and held.bits == 16 else 8


def stored(value: SSAValue, b: Builder) -> SSAValue:
    """Return the integers of a quantized value."""
    value_quantization = quantization(value.type)
    assert value_quantization is not None
    if isinstance(value.owner, StorageCast) and element(value.owner.input.type) in WIDTHS.values():
        return value.owner.input
    plain = tensor(dims(value.type), WIDTHS[value_quantization.bits])
    return b.rw.insert(StorageCast(value, plain)).results[0]


def fixed_point(scales: Sequence[float], bits: int = 31) -> tuple[torch.Tensor, torch.Tensor]:
    """Return multipliers of `bits` bits and shifts, at most 62, for factors, as RESCALE takes them.

    Both are int64 `[len(scales)]`; a shift below 2 means that RESCALE cannot express the factor.
    """
    mantissa, exponent = torch.frexp(torch.tensor(scales, dtype=torch.float64))
    multiplier = torch.round(mantissa * (1 << bits)).long()
    carries = multiplier == 1 << bits
    multiplier = torch.where(carries, multiplier >> 1, multiplier)
    shift = bits - exponent.long() - carries.long()
    excess = (shift - 62).clamp(0, bits)
    return multiplier >> excess, shift.clamp(max=62)


def is_rescaled(factor: float, reach: float, bits: int = 31) -> bool:
    """Whether RESCALE accepts values up to `reach` with a factor and a multiplier of `bits` bits.

    Source: TOSA 1.0, apply_scale_32 and apply_scale_16.
    """
    if not factor < 2.0**32:
        return False
    shift = int(fixed_point([factor], bits)[1])
    if bits == 15:
        return shift >= 2 and reach < 2.0**47 and reach * factor < 2.0**31
    return shift >= 2 and reach < 2.0 ** min(shift - 1, 31)


def beyond_rescale(
    factor: float, reach: float, bits: int = 31, most: float = 2.0**32
) -> Refusal | None:
    """Return why RESCALE cannot scale values up to `reach` by a factor of at most `most`, or
    None.
    """
    if is_rescaled(factor, reach, bits) and factor <= most:
        return None
    return Refusal(f"a factor of {factor:g} is beyond the range of RESCALE")


def out_of_reach(inputs: tuple[Activation, ...], uses: tuple[Use, ...]) -> Refusal | None:
    """Return why values at a result's scale exceed int32 or RESCALE's range, or None."""
    for x in inputs:
        for use in uses:
            factor = x.held.scale / use.held.scale
            refusal = beyond_rescale(factor, 1 << x.held.bits, most=2.0**14)
            if refusal is not None:
                return refusal
    return None


@recipe("tosa_rescale")
def tosa_rescale(
    weight: torch.Tensor,
    *,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    zero_points: Sequence[int],
    bits: int,
) -> torch.Tensor:
    """Compute the RESCALE of a constant: signed integers of `bits` bits."""
    dtype = {8: torch.int8, 16: torch.int16, 32: torch.int32}[bits]
    if weight.is_meta:
        return torch.empty_like(weight, dtype=dtype)
    value = weight.to(torch.int64) - zero_points[0]
    multiplier, shift = torch.tensor(multipliers), torch.tensor(shifts)
    limits = torch.iinfo(dtype)
    made = apply_scale_32(value, multiplier, shift, False) + zero_points[1]
    return made.clamp(limits.min, limits.max).to(dtype)


def rescale(
    value: SSAValue,
    scales: Sequence[float],
    target: Attribute,
    input_zp: int,
    output_zp: int,
    b: Builder,
) -> SSAValue:
    """Build a RESCALE by one factor, or by one for each index of the last axis; fold a constant.

    Signed integers of 16 bits have no zero point in TOSA (1.0, RESCALE). SUB and ADD of int32 apply
    it.
    """
    wide = element(value.type) != i48
    multipliers, shifts = fixed_point(scales, 31 if wide else 15)
    key = weight_key(value)
    if key is not None and wide:
        assert isinstance(target, IntegerType)
        numbers: dict[str, Any] = {
            "multipliers": multipliers.tolist(),
            "shifts": shifts.tolist(),
            "zero_points": [input_zp, output_zp],
            "bits": target.width.data,
        }
        return b.weight(b.rw.weights.derive("tosa_rescale", [key], **numbers))
    if input_zp and element(value.type) == i16:
        value = rescale(value, [1.0], i32, 0, 0, b)
        zero = b.splat(input_zp, value)
        value, input_zp = b.op(t.SubOp, [value, zero], shape_of(value), i32), 0
    if output_zp and target == i16:
        value = rescale_op(value, (multipliers, shifts), i32, (input_zp, 0), b)
        value = b.op(t.AddOp, [value, b.splat(output_zp, value)], shape_of(value), i32)
        return rescale(value, [1.0], i16, 0, 0, b)
    return rescale_op(value, (multipliers, shifts), target, (input_zp, output_zp), b)


def rescale_op(
    value: SSAValue,
    factors: tuple[torch.Tensor, torch.Tensor],
    target: Attribute,
    zero_points: tuple[int, int],
    b: Builder,
) -> SSAValue:
    """Build the RESCALE operator with factors as returned by `fixed_point`."""
    source = element(value.type)
    wide = source != i48
    multipliers, shifts = factors
    input_zp, output_zp = zero_points
    operands = [
        value,
        b.constant(multipliers.to(torch.int32 if wide else torch.int16)),
        b.constant(shifts.to(torch.int8)),
        b.number(input_zp, 1, source)
        if wide
        else b.rw.insert(const(torch.zeros(1), i48)).results[0],
        b.number(output_zp, 1, target),
    ]
    flags = {
        "scale32": wide,
        "per_channel": multipliers.numel() > 1,
        "input_unsigned": False,
        "output_unsigned": False,
    }
    return b.op(
        t.RescaleOp,
        operands,
        shape_of(value),
        target,
        rounding_mode=SINGLE_ROUND,
        **{name: IntegerAttr(int(flag), i1) for name, flag in flags.items()},
    )


def requantized(
    value: SSAValue, parameters: Quantization, held: Quantization, b: Builder
) -> SSAValue:
    """Convert stored integers to another scale."""
    if (parameters.scale, parameters.zero_point) == (held.scale, held.zero_point):
        return value
    target, factor = WIDTHS[held.bits], parameters.scale / held.scale
    return rescale(value, [factor], target, parameters.zero_point, held.zero_point, b)
