"""Choices between quantised values to integer TOSA: minimum, maximum, where; and padding.

Both values are taken to int32 at the result's scale, where the order is that of the reals and no
value is cut off yet; MINIMUM, MAXIMUM or SELECT chooses, and a last RESCALE adds the zero point and
narrows. A padding cell is a constant, quantised ahead of time.

Before:
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %b = quant.dcast %y : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xf32>
    %m = aten.minimum.default(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %z = quant.qcast %m : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
After:
    %0 = quant.scast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<3>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<4xi32>
    %2 = quant.scast %y : tensor<4x!quant.uniform<i8:f32, 0.25>> to tensor<4xi8>
    %3 = tosa.rescale %2, dense<1073741824>, dense<31>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<4xi32>
    %4 = tosa.minimum %1, %3 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %5 = tosa.rescale %4, dense<1073741824>, dense<30>, dense<0>, dense<3> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<4xi8>
    %z = quant.scast %5 : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i1, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import dims, element
from stepwell.translate.quantised.recognise import Activation, Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    out_of_reach,
    requantised,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.integers.lower_int8_elementwise import of_one_value
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


def at_scale(x: Activation, scale: float, b: Builder) -> SSAValue:
    """A value in int32, in units of another scale."""
    return rescale(stored(x.value, b), [x.held.scale / scale], i32, x.held.zero_point, 0, b)


@dataclass(frozen=True)
class LowerInt8Extremum(LowerInt8):
    """`minimum` and `maximum` of two quantised values."""

    name: ClassVar[str] = "lower-int8-extremum"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MinimumDefault, aten.MaximumDefault)
    activations: ClassVar[int] = 2

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """Scales that RESCALE reaches."""
        found = super().match(op, program)
        if not isinstance(found, Quantised):
            return found
        return out_of_reach(found.inputs, found.uses) or found

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Two values."""
        return of_one_value(op)

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """MINIMUM or MAXIMUM in int32."""
        first, second = (at_scale(x, use.held.scale, b) for x in match.inputs)
        cls = t.MinimumOp if isinstance(match.op, aten.MinimumDefault) else t.MaximumOp
        return rescale(b.binary(cls, first, second), [1.0], match.held, 0, use.held.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Where(LowerInt8):
    """`where` of a truth value and two quantised ones."""

    name: ClassVar[str] = "lower-int8-where"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.WhereSelf,)

    def values(self, op: SchemaOp) -> Sequence[SSAValue]:
        """Both choices."""
        return op.operands[1:]

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A condition that is no tensor of `i1`."""
        is_truth = element(op.operands[0].type) == i1
        return None if is_truth else Refusal("its condition is not a truth value")

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """Every part, of scales that int32 can reach."""
        made = super().match(op, program)
        if not isinstance(made, Quantised):
            return made
        return out_of_reach(made.inputs, made.uses) or made

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """SELECT in int32."""
        values = [at_scale(x, use.held.scale, b) for x in match.inputs]
        chosen = b.select(match.op.operands[0], *values)
        return rescale(chosen, [1.0], match.held, 0, use.held.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Pad(LowerInt8):
    """`constant_pad_nd` of a quantised value with a number."""

    name: ClassVar[str] = "lower-int8-pad"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConstantPadNdDefault,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Widths that are not negative."""
        if any(not isinstance(n, int) or n < 0 for n in op.arg("pad")):
            return Refusal("the padding is negative, or known only at run time")
        return None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """One PAD, after a RESCALE to a new scale."""
        op, x = match.op, match.inputs[0]
        value = requantised(stored(x.value, b), x.held, use.held, b)
        pad, shape = op.arg("pad"), dims(op.results[0].type)
        pairs = [list(pad[i : i + 2]) for i in range(0, len(pad), 2)]
        pairs += [[0, 0]] * (len(shape) - len(pairs))
        flat = [n for pair in reversed(pairs) for n in pair]
        cell = quantize(torch.tensor([float(op.arg("value"))]), use.held)
        made = shape_of(op.results[0])
        return b.op(t.PadOp, [value, b.sizes(flat), b.constant(cell)], made, match.held)
