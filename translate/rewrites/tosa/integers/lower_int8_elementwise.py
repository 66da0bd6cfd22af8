"""Sums, products, clamps and functions of quantised values to integer TOSA.

Operands are taken to int32, at a common scale for a sum, and one RESCALE takes what is computed to
the result's. A function of one int8 value alone is a TABLE, exact whatever it is; of casts alone, a
RESCALE.

Before:
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %y = quant.qcast %a : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 1.0>>
After:
    %0 = quant.scast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<31>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4xi8>
    %y = quant.scast %1 : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 1.0>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.quantised.functions import Chain, byte_chain, is_one_element, table_of
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    clamp_bounds,
    narrowed,
    not_integers,
)
from stepwell.translate.rewrites.tosa.integers.integers import (
    IN_UNITS,
    LEFT_SHIFT,
    LowerInt8,
    Quantised,
    beyond_rescale,
    requantised,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class LowerInt8Add(LowerInt8):
    """`add`, `sub`: both operands to int32 at a common scale, the sum, and one RESCALE."""

    name: ClassVar[str] = "lower-int8-add"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddTensor, aten.SubTensor)
    activations: ClassVar[int] = 2

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A plain sum of operands of one rank."""
        if op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}, not 1")
        return of_one_value(op)

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """From the common scale; to it, the larger operand takes half of what was gained."""
        common, gain = common_scale(match)
        reach = gain * (1 << match.inputs[0].held.bits)
        return [(common / (gain * use.held.scale), reach)]

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Twice the larger scale leaves room for the sum."""
        common, gain = common_scale(match)
        first, second = (
            rescale(
                stored(x.value, b), [gain * x.held.scale / common], i32, x.held.zero_point, 0, b
            )
            for x in match.inputs
        )
        cls = t.AddOp if isinstance(match.op, aten.AddTensor) else t.SubOp
        total = b.binary(cls, first, second)
        back = common / (gain * use.held.scale)
        return rescale(total, [back], match.held, 0, use.held.zero_point, b)


def common_scale(match: Quantised) -> tuple[float, float]:
    """The scale that both operands of a sum are taken to, and what its integers are multiplied by."""
    common = 2 * max(x.held.scale for x in match.inputs)
    return common, float(1 << LEFT_SHIFT[match.inputs[0].held.bits])


@dataclass(frozen=True)
class LowerInt8Mul(LowerInt8):
    """`mul`: both operands in int32 without zero points, the product, and one RESCALE.

    MUL takes integers of 8 and 16 bits as they are where neither has a zero point.
    """

    name: ClassVar[str] = "lower-int8-mul"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor,)
    activations: ClassVar[int] = 2

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A product of two values."""
        return of_one_value(op)

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """From the product of both scales."""
        first, second = (x.held for x in match.inputs)
        reach = 1 << 16 if first.bits == 8 else 1 << 30
        return [(first.scale * second.scale / use.held.scale, reach)]

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """At most 2^30 for 16-bit operands."""
        first, second = (stored(x.value, b) for x in match.inputs)
        if any(x.held.zero_point for x in match.inputs):
            zeros = [x.held.zero_point for x in match.inputs]
            first, second = (
                rescale(value, [1.0], i32, zero, 0, b)
                for value, zero in zip((first, second), zeros, strict=True)
            )
        ((factor, _),) = self.factors(match, use)
        product = b.binary(t.MulOp, first, second, i32)
        return rescale(product, [factor], match.held, 0, use.held.zero_point, b)


def of_one_value(op: SchemaOp) -> Refusal | None:
    """Whether an op of 8-bit values reads one alone, beside constants of one element."""
    read = {value.owner.input for value in op.operands if isinstance(value.owner, DequantizeCast)}
    read = {value for value in read if not is_one_element(value)}
    shapes = [shape_of(value) for value in read]
    if width(op.operands[0]) == 8 and shapes == [shape_of(op.results[0])]:
        return Refusal("it is a function of one value, which a TABLE computes")
    return None


@dataclass(frozen=True)
class LowerInt8Clamp(LowerInt8):
    """A clamp of a quantised value to CLAMP on its integers, after a RESCALE to a new scale."""

    name: ClassVar[str] = "lower-int8-clamp"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampDefault,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Bounds that are numbers."""
        return Refusal("a bound is computed at run time") if clamp_bounds(op) is None else None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """The clamp in the result's integers: quantising is monotone."""
        bounds = clamp_bounds(match.op)
        assert bounds is not None
        x = match.inputs[0]
        value = requantised(stored(x.value, b), x.held, use.held, b)
        low, high = narrowed(use.held, (bounds,))
        held = (use.held.low, use.held.high)
        return value if (low, high) == held else b.clamp(value, low, high)


@dataclass(frozen=True)
class Requantised:
    """A cast of a dequantised value to another scale."""

    cast: QuantizeCast
    value: Activation
    held: Quantization


@dataclass(frozen=True)
class LowerInt8Requantise(Rewrite[Requantised]):
    """`qcast(dcast(x))` to RESCALE."""

    name: ClassVar[str] = "lower-int8-requantise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = IN_UNITS

    def match(self, op: QuantizeCast, program: Program) -> Requantised | Refusal | None:
        """Both sides int8 or int16."""
        if not isinstance(op.input.owner, DequantizeCast):
            return None
        found = activation(op.input, width(op.input))
        if isinstance(found, Refusal):
            return found
        held = quantization(op.result.type)
        assert held is not None
        reason = not_integers(held, 16 if held.bits == 16 else 8)
        if reason is not None:
            return Refusal(f"its result is quantised {reason}")
        refusal = beyond_rescale(found.held.scale / held.scale, 1 << found.held.bits)
        return refusal or Requantised(op, found, held)

    def build(self, match: Requantised, rw: Rewriter) -> None:
        """One RESCALE."""
        b = Builder(rw)
        given = match.value
        value = requantised(stored(given.value, b), given.held, match.held, b)
        rw.replace(match.cast, rw.insert(StorageCast(value, match.cast.result.type)).results)


@dataclass(frozen=True)
class LowerInt8Function(Rewrite[Chain]):
    """Any function of one int8 value alone to a TABLE of what the float ops give, bit for bit."""

    name: ClassVar[str] = "lower-int8-function"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Chain | Refusal | None:
        """A chain of elementwise ops between casts; casts alone are a RESCALE."""
        if isinstance(op.input.owner, DequantizeCast):
            return None
        return byte_chain(op)

    def build(self, match: Chain, rw: Rewriter) -> None:
        """One TABLE."""
        b = Builder(rw)
        value = stored(match.source, b)
        entries = b.constant(table_of(match, rw.program))
        y = b.op(t.TableOp, [value, entries], shape_of(value), i8)
        rw.replace(match.cast, rw.insert(StorageCast(y, match.cast.result.type)).results)
