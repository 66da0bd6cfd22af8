"""Recognizes quantized layers: the integers of operands, and the quantizations of results.

An op of a quantized program is float between casts. A target calls `activation` for its inputs,
`stored_weight` and `bias_operand` for its constants and `quantized_uses` for its result, and emits
its op for those integers. If one of these returns a reason, the layer stays a float and the report
states the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

import stepwell.dialects.quant.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import AnyTensor
from stepwell.translate.rewrites.quant.parameters import is_dynamic

Reals = tuple[float | None, float | None]


@dataclass(frozen=True)
class Use:
    """A quantization of a result, with clamps in between folded into the range `low` … `high`.

    `bounds` is the same range in reals, None without a clamp.
    """

    cast: QuantizeCast
    held: Quantization
    low: int
    high: int
    bounds: Reals = (None, None)

    @property
    def type(self) -> Attribute:
        """Return the type of the quantized result."""
        return self.cast.result.type

    @property
    def key(self) -> tuple[Attribute, int, int]:
        """Return a key; uses with equal keys share one op."""
        return self.type, self.low, self.high


def quantized_uses(
    value: SSAValue, bits: int = 8, unsigned: bool = False
) -> tuple[Use, ...] | Refusal:
    """Return how a float result is quantized, or why the op must stay a float.

    Every use has to be an int8 quantization (or one of `bits`, or an `unsigned` one too, if a
    kernel has that form), directly or through clamps all of whose uses are quantized.
    """
    uses: list[Use] = []
    pending: list[tuple[SSAValue, tuple[Reals, ...]]] = [(value, ())]
    while pending:
        current, clamps = pending.pop()
        if current.uses.get_length() == 0:
            continue
        for use in current.uses:
            user = use.operation
            if isinstance(user, QuantizeCast):
                result_quantization = quantization(user.result.type)
                assert result_quantization is not None
                if reason := not_integers(result_quantization, bits, unsigned):
                    return Refusal(f"the result is quantized {reason}")
                uses.append(
                    Use(
                        user,
                        result_quantization,
                        *narrowed(result_quantization, clamps),
                        common_bounds(clamps),
                    )
                )
            elif isinstance(user, SchemaOp) and (bounds := clamp_bounds(user)) is not None:
                pending.append((user.results[0], (bounds, *clamps)))
            else:
                return Refusal(f"the result is used as a float by {op_name(user)}")
    return tuple(uses) if uses else Refusal("the result is not used")


def not_int8(parameters: Quantization) -> str | None:
    """Return why the int8 kernels cannot work on these integers, or None."""
    return not_integers(parameters, 8)


def not_integers(parameters: Quantization, bits: int, unsigned: bool = False) -> str | None:
    """Return why a kernel over signed (or `unsigned`) integers of `bits` cannot work, or None."""
    if not parameters.is_per_tensor:
        return "along an axis; activations have one scale"
    if parameters.bits != bits or not (parameters.signed or unsigned):
        kinds = f"int{bits} or uint{bits}" if unsigned else f"int{bits}"
        return f"to {dtype_name(parameters.storage)}, not {kinds}"
    return None


def clamp_bounds(op: SchemaOp) -> Reals | None:
    """Return the bounds of an op that only clamps (relu, relu6, hardtanh, clamp), or None.

    The result is also None if a bound is dynamic or NaN.
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
    bounds = _real(low), _real(high)
    return None if any(bound != bound for bound in bounds) else bounds


def _real(value: Any) -> float | None:
    return None if value is None else float(value)


def narrowed(parameters: Quantization, clamps: Sequence[Reals]) -> tuple[int, int]:
    """Return the stored range after clamps, innermost last; quantization is monotone."""
    low, high = parameters.low, parameters.high
    for least, most in reversed(clamps):
        if least is not None:
            low = max(low, _stored(least, parameters))
            high = max(high, _stored(least, parameters))
        if most is not None:
            high = min(high, _stored(most, parameters))
            low = min(low, _stored(most, parameters))
    return low, high


def common_bounds(clamps: Sequence[Reals]) -> Reals:
    """Return the bounds of one clamp that is equivalent to several, outermost first; None without
    bounds.
    """
    low, high = -math.inf, math.inf
    for least, most in reversed(clamps):
        if least is not None:
            low, high = max(low, least), max(high, least)
        if most is not None:
            low, high = min(low, most), min(high, most)
    return None if low == -math.inf else low, None if high == math.inf else high


def _stored(real: float, parameters: Quantization) -> int:
    if math.isinf(real):
        return parameters.high if real > 0 else parameters.low
    inverse = torch.tensor(1.0 / parameters.scale, dtype=torch.float32)
    code = (
        int(torch.round(torch.tensor(real, dtype=torch.float32) * inverse)) + parameters.zero_point
    )
    return max(parameters.low, min(parameters.high, code))


@dataclass(frozen=True)
class Activation:
    """A quantized value, per tensor; int8 unless a kernel has another form."""

    value: SSAValue
    held: Quantization


def is_finer(use: Use, given: Activation) -> bool:
    """Whether a use has finer steps than its operand, to which averaging kernels round."""
    return use.held.scale < given.held.scale * (1 - 1e-6)


def activation(value: SSAValue, bits: int = 8, unsigned: bool = False) -> Activation | Refusal:
    """Return the int8 value of a float operand (or one of `bits`, optionally `unsigned`)."""
    maker, source = value.owner, quantized_source(value)
    if source is None:
        if isinstance(maker, SchemaOp) and is_dynamic(maker):
            return Refusal(
                "the operand's scale is computed at run time; the kernels take constants"
            )
        what = op_name(maker) if isinstance(maker, Operation) else "an input"
        return Refusal(f"the operand comes from {what} and is not quantized")
    source_quantization = quantization(source.type)
    assert source_quantization is not None
    if reason := not_integers(source_quantization, bits, unsigned):
        return Refusal(f"the operand is quantized {reason}")
    return Activation(source, source_quantization)


@dataclass(frozen=True)
class StoredWeight:
    """A dequantized constant: the key of its stored integers, and their quantization."""

    key: str
    held: Quantization


def quantized_source(value: SSAValue) -> SSAValue | None:
    """Return the quantized value from which a real value is dequantized."""
    return value.owner.input if isinstance(value.owner, DequantizeCast) else None


def stored_constant(value: SSAValue) -> StoredWeight | None:
    """Return the stored integers of a dequantized constant."""
    source = quantized_source(value)
    if source is None or not isinstance(source.owner, StorageCast):
        return None
    key, source_quantization = weight_key(source.owner.input), quantization(source.type)
    return (
        None
        if key is None or source_quantization is None
        else StoredWeight(key, source_quantization)
    )


def stored_weight(value: SSAValue | None) -> StoredWeight | Refusal:
    """Return the int8 constant of a float operand, or why there is none."""
    if value is None or quantized_source(value) is None:
        return Refusal("the weight is not quantized")
    constant = stored_constant(value)
    if constant is None:
        return Refusal("the weight is computed at run time")
    if constant.held.bits != 8 or not constant.held.signed:
        return Refusal(f"the weight is {dtype_name(constant.held.storage)}, not int8")
    if constant.held.sub_channel:
        return Refusal("the weight has a scale for each block; the kernel takes one for each row")
    return constant


def not_for_each_output(weight: StoredWeight, axis: int) -> Refusal | None:
    """Refuse a filter unless it is symmetric, with one scale or one per output index."""
    if weight.held.axis in (None, axis) and weight.held.is_symmetric:
        return None
    return Refusal("the weight is not quantized symmetrically for each output channel")


@dataclass(frozen=True)
class Bias:
    """A constant bias: stored integers with scales `unit`, or reals if `unit` is None."""

    key: str
    unit: tuple[float, ...] | None


def bias_operand(value: SSAValue | None) -> Bias | Refusal | None:
    """Return the bias as the graph states it: reals, or int32 with scales; None if there is
    none.
    """
    if value is None:
        return None
    key = weight_key(value)
    if key is not None:
        return Bias(key, None)
    constant = stored_constant(value)
    if constant is None:
        return Refusal("the bias is computed at run time")
    held = constant.held
    if not held.is_symmetric:
        return Refusal("the bias has a zero point")
    return Bias(constant.key, tuple(held.scales))


def integer_bias(
    bias: Bias | None, scales: Sequence[float], channels: int, program: Program
) -> str | None:
    """Return the key of int32 biases at the accumulators' scales.

    Integers whose own scale equals the accumulator's, up to float32, are used unchanged.
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


def distinct(uses: Sequence[Use]) -> list[tuple[Use, list[Use]]]:
    """Return groups of uses that the same ops can serve, in order."""
    groups: dict[tuple[Attribute, int, int], list[Use]] = {}
    for use in uses:
        groups.setdefault(use.key, []).append(use)
    return [(group[0], group) for group in groups.values()]


def deliver(rw: Rewriter, group: Sequence[Use], value: SSAValue) -> None:
    """Replace every quantization in a group by a quantized value."""
    for use in group:
        rw.replace(use.cast, [value])


def typed_weight(rw: Rewriter, key: str, type_: AnyTensor) -> SSAValue:
    """Return a stored weight with its quantized type."""
    return rw.insert(StorageCast(rw.weight(key), type_)).results[0]
