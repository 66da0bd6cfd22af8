"""What the lowerings share: quantised operands, quantised uses, weights and biases as integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from xdsl.ir import Attribute, Operation, SSAValue

import stepwell.dialects.cmsis.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    row_overflows,
)
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewriter
from stepwell.ir.types import AnyTensor, is_static
from stepwell.translate.rewrites.quant.parameters import is_dynamic

Reals = tuple[float | None, float | None]


@dataclass(frozen=True)
class Use:
    """A quantisation of a result, clamps in between folded into the range `low` … `high`."""

    cast: QuantizeCast
    held: Quantization
    low: int
    high: int

    @property
    def type(self) -> Attribute:
        """The type of the quantised result."""
        return self.cast.result.type

    @property
    def key(self) -> tuple[Attribute, int, int]:
        """Uses with equal keys are served by one op."""
        return self.type, self.low, self.high


def quantized_uses(value: SSAValue, bits: int = 8) -> tuple[Use, ...] | Refusal:
    """How a float result is quantised, or why it must stay a float.

    Every use has to be an int8 quantisation (or one of `bits`, where a kernel has that form too),
    directly or through clamps whose every use is.
    """
    found: list[Use] = []
    pending: list[tuple[SSAValue, tuple[Reals, ...]]] = [(value, ())]
    while pending:
        current, clamps = pending.pop()
        if current.uses.get_length() == 0:
            continue
        for use in current.uses:
            user = use.operation
            if isinstance(user, QuantizeCast):
                held = quantization(user.result.type)
                assert held is not None
                if reason := not_signed(held, bits):
                    return Refusal(f"its result is quantised {reason}")
                found.append(Use(user, held, *narrowed(held, clamps)))
            elif isinstance(user, SchemaOp) and (bounds := clamp_bounds(user)) is not None:
                pending.append((user.results[0], (bounds, *clamps)))
            else:
                return Refusal(f"its result is used as a float by {op_name(user)}")
    return tuple(found) if found else Refusal("its result is not used")


def not_int8(held: Quantization) -> str | None:
    """Why the int8 kernels cannot work on these integers, or None."""
    return not_signed(held, 8)


def not_signed(held: Quantization, bits: int) -> str | None:
    """Why a kernel over signed integers of `bits` cannot work on these, or None."""
    if not held.is_per_tensor:
        return "along an axis; activations have one scale"
    if held.bits != bits or not held.signed:
        return f"to {dtype_name(held.storage)}, not int{bits}"
    return None


def clamp_bounds(op: SchemaOp) -> Reals | None:
    """The bounds of an op that only clamps (relu, relu6, hardtanh, clamp), or None.

    None too where a bound is computed at run time.
    """
    low: Any = None
    high: Any = None
    match op.name:
        case "aten.relu.default":
            low = 0.0
        case "aten.relu6.default":
            low, high = 0.0, 6.0
        case "aten.hardtanh.default":
            low, high = op.arg("min_val"), op.arg("max_val")
        case "aten.clamp.default":
            low, high = op.arg("min"), op.arg("max")
        case "aten.clamp_min.default":
            low = op.arg("min")
        case "aten.clamp_max.default":
            high = op.arg("max")
        case _:
            return None
    if any(isinstance(bound, SSAValue) for bound in (low, high)):
        return None
    return _real(low), _real(high)


def _real(value: Any) -> float | None:
    return None if value is None else float(value)


def narrowed(held: Quantization, clamps: Sequence[Reals]) -> tuple[int, int]:
    """The stored range after clamps, innermost last: quantising is monotone, so it commutes."""
    low, high = held.low, held.high
    for least, most in reversed(clamps):
        if least is not None:
            low = max(low, _stored(least, held))
            high = max(high, _stored(least, held))
        if most is not None:
            high = min(high, _stored(most, held))
            low = min(low, _stored(most, held))
    return low, high


def _stored(real: float, held: Quantization) -> int:
    if math.isinf(real):
        return held.high if real > 0 else held.low
    inverse = torch.tensor(1.0 / held.scale, dtype=torch.float32)
    code = int(torch.round(torch.tensor(real, dtype=torch.float32) * inverse)) + held.zero_point
    return max(held.low, min(held.high, code))


def not_fixed(*values: SSAValue) -> Refusal | None:
    """Most of the library's operators resize nothing: their shapes are known ahead of time."""
    if all(is_static(value.type) for value in values):
        return None
    return Refusal("its shape is known only at run time, and the operator resizes nothing")


@dataclass(frozen=True)
class Activation:
    """A quantised value, per tensor; int8 but where a kernel has another form."""

    value: SSAValue
    held: Quantization


def activation(value: SSAValue, bits: int = 8) -> Activation | Refusal:
    """The int8 (or `bits` wide) value that a float operand stands for, or why there is none."""
    maker = value.owner
    if not isinstance(maker, DequantizeCast):
        if isinstance(maker, SchemaOp) and is_dynamic(maker):
            return Refusal(
                "its operand's scale is computed at run time; the kernels take constants"
            )
        what = op_name(maker) if isinstance(maker, Operation) else "an input"
        return Refusal(f"its operand comes from {what} and is not quantised")
    held = quantization(maker.input.type)
    assert held is not None
    if reason := not_signed(held, bits):
        return Refusal(f"its operand is quantised {reason}")
    return Activation(maker.input, held)


@dataclass(frozen=True)
class Weight:
    """A constant operand: its stored integers in the weight store, and what they mean."""

    key: str
    held: Quantization


def stored_weight(value: SSAValue | None) -> Weight | Refusal:
    """The quantised constant that a float operand stands for, or why there is none."""
    maker = None if value is None else value.owner
    if not isinstance(maker, DequantizeCast):
        return Refusal("its weight is not quantised")
    typed = maker.input.owner
    key = weight_key(typed.input) if isinstance(typed, StorageCast) else None
    if key is None:
        return Refusal("its weight is computed at run time")
    held = quantization(maker.input.type)
    assert held is not None
    if held.bits != 8 or not held.signed:
        return Refusal(f"its weight is {dtype_name(held.storage)}, not int8")
    if held.sub_channel:
        return Refusal("its weight has a scale for each block; the kernel takes one for each row")
    return Weight(key, held)


def not_for_each_output(weight: Weight, axis: int) -> Refusal | None:
    """A convolution's filter is symmetric, with one scale or one for each index of its outputs."""
    if weight.held.axis in (None, axis) and weight.held.is_symmetric:
        return None
    return Refusal("its weight is not quantised symmetrically for each output channel")


@dataclass(frozen=True)
class Bias:
    """A bias in the store: stored integers of scales `unit`, or reals if `unit` is None."""

    key: str
    unit: tuple[float, ...] | None


def bias_operand(value: SSAValue | None) -> Bias | Refusal | None:
    """A bias as the graph gives it: reals, or int32 with scales; None where there is none."""
    if value is None:
        return None
    key = weight_key(value)
    if key is not None:
        return Bias(key, None)
    maker = value.owner
    typed = maker.input.owner if isinstance(maker, DequantizeCast) else None
    key = weight_key(typed.input) if isinstance(typed, StorageCast) else None
    if key is None:
        return Refusal("its bias is computed at run time")
    held = quantization(cast(StorageCast, typed).result.type)
    assert held is not None
    if not held.is_symmetric:
        return Refusal("its bias has a zero point")
    return Bias(key, tuple(held.scales))


def integer_bias(
    bias: Bias | None, scales: Sequence[float], channels: int, program: Program
) -> str | None:
    """The key of int32 biases at the accumulators' scales.

    Integers whose own scale is the accumulator's, up to float32, are taken as they are.
    """
    if bias is None:
        return None
    spread = list(scales) if len(scales) == channels else list(scales) * channels
    if bias.unit is not None:
        unit = bias.unit if len(bias.unit) == channels else bias.unit * channels
        if all(abs(u / s - 1) < 1e-6 for u, s in zip(unit, spread, strict=True)):
            return bias.key
        return program.weights.derive("cmsis.bias", [bias.key], scales=spread, unit=list(unit))
    return program.weights.derive("cmsis.bias", [bias.key], scales=spread)


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


def distinct(uses: Sequence[Use]) -> list[tuple[Use, list[Use]]]:
    """Uses grouped by what one op can serve, in order."""
    groups: dict[tuple[Attribute, int, int], list[Use]] = {}
    for use in uses:
        groups.setdefault(use.key, []).append(use)
    return [(group[0], group) for group in groups.values()]


def deliver(rw: Rewriter, group: Sequence[Use], value: SSAValue) -> None:
    """Let a quantised value take the place of every quantisation in a group."""
    for use in group:
        rw.replace(use.cast, [value])


def typed_weight(rw: Rewriter, key: str, type_: AnyTensor) -> SSAValue:
    """A stored weight under its quantised type."""
    return rw.insert(StorageCast(rw.weight(key), type_)).results[0]


def pair(value: Any) -> tuple[int, int]:
    """An `int[2]` argument, of which torch lets one number stand for both."""
    items = cast("list[int]", value if isinstance(value, list) else [value])
    return (items[0], items[0]) if len(items) == 1 else (items[0], items[1])
