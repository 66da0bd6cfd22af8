"""Ops that select elements of their operands select among the stored integers.

A gather, a write by index, and a window's maximum compute nothing: every element of their result is
an operand's element, selected by position or by order, and quantization keeps both. If the operands
have the same quantization, so has the result, whatever reads it. If the operands have different
scales and the result is quantized, they are rescaled to the result's scale first. That rounds once,
as quantizing the result does.

Before:
    %a = quant.dcast %x : tensor<4x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<4x3xf32>
    %y = aten.index.Tensor(%a, [%i]) : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
After:
    %0 = quant.scast %x : tensor<4x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<4x3xi8>
    %1 = aten.index.Tensor(%0, [%i]) : (tensor<4x3xi8>, tensor<2xi64>) -> tensor<2x3xi8>
    %2 = quant.scast %1 : tensor<2x3xi8> to tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>
    %y = quant.dcast %2 : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantized_type
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import element, with_element
from stepwell.translate.lowerings.tosa.values import Value, clamp
from stepwell.translate.quantized.recognize import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    quantized_uses,
)
from stepwell.translate.rewrites.tosa.integers.integers import (
    IN_UNITS,
    out_of_reach,
    requantized,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rewrites.tosa.operators.sizes import inexpressible

_SOURCES = {
    "as_strided.default": "self",
    "as_strided_copy.default": "self",
    "channel_shuffle.default": "self",
    "diagonal.default": "self",
    "diagonal_copy.default": "self",
    "gather.default": "self",
    "index.Tensor": "self",
    "index_put.default": "self values",
    "max_pool1d.default": "self",
    "max_pool2d.default": "self",
    "max_pool3d.default": "self",
    "scatter.src": "self src",
    "select_scatter.default": "self src",
    "slice_scatter.default": "self src",
    "take_along_dim.default": "self",
    "unfold.default": "self",
    "unfold_copy.default": "self",
}
SOURCES: dict[type[Operation], tuple[str, ...]] = {
    op_class(f"aten.{name}"): tuple(operands.split()) for name, operands in _SOURCES.items()
}
"""The operands whose elements a result consists of; the other operands select."""


@dataclass(frozen=True)
class Chosen:
    """A selection among quantized elements, and the `uses` of its result if the scales differ."""

    op: SchemaOp
    sources: tuple[Activation, ...]
    places: tuple[int, ...]
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class ChooseStoredIntegers(Rewrite[Chosen]):
    """Select stored integers: choose(dq(x)) → dq(choose(x)), or q(choose(dq(x), …)) →
    choose(rescale(x), …).
    """

    name: ClassVar[str] = "choose-stored-integers"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(SOURCES)
    bound: ClassVar[Bound] = IN_UNITS

    def match(self, op: SchemaOp, program: Program) -> Chosen | Refusal | None:
        """Match operands that are quantized per tensor, equally or with a quantized result."""
        if "accumulate" in op.SCHEMA.by_name and op.arg("accumulate"):
            return Refusal("the op adds to existing elements instead of selecting")
        values = [op.operand(name) for name in SOURCES[type(op)]]
        if not any(v is not None and isinstance(v.owner, DequantizeCast) for v in values):
            return None
        bits = width(op.operands[0])
        activations: list[Activation] = []
        for value in values:
            assert value is not None
            source = activation(value, bits)
            if isinstance(source, Refusal):
                return source
            activations.append(source)
        reason = inexpressible(op.results[0])
        if reason is not None:
            return Refusal(reason)
        operands = list(op.operands)
        places = tuple(operands.index(value) for value in values if value is not None)
        if len({element(source.value.type) for source in activations}) == 1:
            return Chosen(op, tuple(activations), places)
        uses = quantized_uses(op.results[0], bits)
        if isinstance(uses, Refusal):
            return Refusal(f"the operands have several scales, and {uses.reason}")
        made = Chosen(op, tuple(activations), places, uses)
        return out_of_reach(made.sources, uses) or made

    def bound_at(self, match: Chosen, value: object) -> Bound:
        """Return the error bound: exact if nothing is rescaled."""
        return IN_UNITS if match.uses else EXACT

    def build(self, match: Chosen, rw: Rewriter) -> None:
        """Build the op on integers, once for each distinct quantization of its uses."""
        b, op = Builder(rw), match.op
        if not match.uses:
            source_element = element(match.sources[0].value.type)
            assert isinstance(source_element, UniformQuantizedType)
            integers = [stored(source.value, b) for source in match.sources]
            result = _on(op, match.places, integers, b)
            typed = rw.insert(
                StorageCast(result, quantized_type(result.type, source_element))
            ).results[0]
            real = rw.insert(DequantizeCast(typed, op.results[0].type)).results[0]
            rw.replace_value(op.results[0], real)
            return
        for use, group in distinct(match.uses):
            integers = [
                requantized(stored(source.value, b), source.held, use.held, b)
                for source in match.sources
            ]
            result = _on(op, match.places, integers, b)
            if (use.low, use.high) != (use.held.low, use.held.high):
                result = clamp(Value(result, b), use.low, use.high).ssa
            deliver(rw, group, rw.insert(StorageCast(result, use.type)).results[0])


def _on(op: SchemaOp, places: Sequence[int], integers: Sequence[SSAValue], b: Builder) -> SSAValue:
    """Build the same op on integer operands."""
    operands = list(op.operands)
    for place, value in zip(places, integers, strict=True):
        operands[place] = value
    made = with_element(op.results[0].type, element(integers[0].type))
    types = [made, *(result.type for result in op.results[1:])]
    return b.rw.insert(remade(op, operands, types)).results[0]
