"""Integers of quantized values in TOSA's operators, and RESCALE between their scales."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import is_static
from stepwell.translate.lowerings.goals import Grammar, grammar
from stepwell.translate.lowerings.lowering import no_refusal, refuse
from stepwell.translate.lowerings.tosa.values import Value, clamp
from stepwell.translate.quantized.functions import is_one_element
from stepwell.translate.quantized.layers import Layer, Parts, layer_of
from stepwell.translate.quantized.recognize import Activation, Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    IN_UNITS,
    WIDTHS,
    beyond_rescale,
    requantized,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import inexpressible


class Integers:
    """An activation: its quantization, and its integers, which are created on first use."""

    __slots__ = ("b", "given", "held", "ssa")

    def __init__(self, given: Activation, b: Builder) -> None:
        self.given, self.ssa, self.held, self.b = given, given.value, given.held, b

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the sizes of the tensor."""
        return shape_of(self.ssa)

    def stored(self) -> Value:
        """Return the integers that store the quantized tensor."""
        return Value(stored(self.ssa, self.b), self.b)

    def wide(self, factor: float = 1.0) -> Value:
        """Return the integers in int32 without the zero point, times a factor."""
        return rescaled(self.stored(), factor, self.held.zero_point)

    def at(self, held: Quantization) -> Value:
        """Return the integers at another scale."""
        return Value(requantized(self.stored().ssa, self.held, held, self.b), self.b)

    def means_what(self, use: Use) -> bool:
        """Whether the activation has the scale and zero point of a quantized result, `use`."""
        held = use.held
        return (self.held.scale, self.held.zero_point) == (held.scale, held.zero_point)


def rescaled(
    x: Value, factor: float, zero: int = 0, dtype: Attribute = i32, made: int = 0
) -> Value:
    """RESCALE to int32 or another type, subtracting a zero point and adding the result's."""
    return Value(rescale(x.ssa, [factor], dtype, zero, made, x.b), x.b)


def delivered(x: Value, factor: float, use: Use, zero: int = 0) -> Value:
    """RESCALE to the integers of a quantized result, `use`, subtracting a zero point."""
    held = use.held
    return rescaled(x, factor, zero, WIDTHS[held.bits], held.zero_point)


def needs_reach(use: Use, *factors: tuple[float, float]) -> None:
    """Refuse a factor, or a range of integers before it, that RESCALE does not support."""
    for factor, reach in factors:
        no_refusal(beyond_rescale(factor, reach, 31 if use.held.bits == 8 else 15))


def needs_scales(use: Use, *inputs: Integers, times: int = 1, most: float = 2.0**32) -> None:
    """Refuse operands whose integers, multiplied by up to `times`, RESCALE cannot convert to the
    result's scale.
    """
    for x in inputs:
        factor = x.held.scale / use.held.scale
        needs_reach(use, (factor, times << x.held.bits))
        if most < 2.0**32:
            no_refusal(beyond_rescale(factor, 1 << x.held.bits, most=most))


def is_of_one_value(op: SchemaOp) -> bool:
    """Whether an op reads only one 8-bit value, and constants of one element."""
    read = {value.owner.input for value in op.operands if isinstance(value.owner, DequantizeCast)}
    read = {value for value in read if not is_one_element(value)}
    shapes = [shape_of(value) for value in read]
    return width(op.operands[0]) == 8 and shapes == [shape_of(op.results[0])]


def needs_two(op: SchemaOp) -> None:
    """Refuse an op that a TABLE can compute."""
    if is_of_one_value(op):
        refuse("the op is a function of one value, which a TABLE computes")


def _layer(op: SchemaOp, parts: Parts, program: Program, symbols: bool) -> Layer | Refusal:
    """Return a layer of 8-bit integers, or 16-bit without zero points; its weight is symmetric."""
    bits = width(parts.activations[0])
    layer = layer_of(op, parts, bits)
    if isinstance(layer, Refusal):
        return layer
    held = [item.held for item in (*layer.inputs, *layer.uses)]
    if bits == 16 and any(each.expressed != f32 for each in held):
        return Refusal("the floats are halves, which are coarser than 16-bit integers")
    if bits == 16 and any(each.zero_point for each in held):
        return Refusal("TOSA takes zero points for 8-bit integers only")
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType) and not is_static(value.type):
            reason = inexpressible(value) if symbols else "the shape is symbolic"
            if reason is not None:
                return Refusal(reason)
    if layer.constant is not None and not layer.constant.held.is_symmetric:
        return Refusal("the weight has a zero point")
    if layer.constant is not None and layer.constant.held.axis not in (None, parts.axis):
        return Refusal("the weight has a scale for each input, not for each output")
    return layer


def _delivered(y: Value, use: Use, b: Builder) -> SSAValue:
    """Return integers typed as the quantized result, clamped to its range if that is narrower."""
    if (use.low, use.high) != (use.held.low, use.held.high):
        y = clamp(y, use.low, use.high)
    return b.rw.insert(StorageCast(y.ssa, use.type)).results[0]


grammar("tosa", Grammar(_layer, Integers, _delivered, IN_UNITS))
