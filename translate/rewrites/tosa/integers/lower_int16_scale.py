"""A product of 16-bit integers with one positive number is a RESCALE.

The mean's 1/n, attention's 1/√d: as a product they would be read, multiplied and rescaled.

Before:
    %n = stepwell.weight <"n#ones"> "constant" : tensor<1xi16>
    %t = quant.scast %n : tensor<1xi16> to tensor<1x!quant.uniform<i16:f32, 0.25>>
    %c = quant.dcast %t : tensor<1x!quant.uniform<i16:f32, 0.25>> to tensor<1xf32>
    %a = quant.dcast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xf32>
    %z = aten.mul.Tensor(%a, %c) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %y = quant.qcast %z : tensor<4xf32> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
After:
    %0 = quant.scast %x : tensor<4x!quant.uniform<i16:f32, 0.001>> to tensor<4xi16>
    %1 = tosa.rescale %0, dense<1342177280>, dense<29>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<4xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi16>) -> tensor<4xi16>
    %y = quant.scast %1 : tensor<4xi16> to tensor<4x!quant.uniform<i16:f32, 0.0001>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.ops import dequantize
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.quantised.functions import is_one_element
from stepwell.translate.quantised.recognise import Activation, Use
from stepwell.translate.rewrites.tosa.integers.integers import (
    LowerInt8,
    Quantised,
    is_rescaled,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class LowerInt16Scale(LowerInt8):
    """`mul` by a constant of one element."""

    name: ClassVar[str] = "lower-int16-scale"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor,)
    activations: ClassVar[int] = 2

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """A number in the reach of RESCALE, which multiplies by no negative one."""
        if width(op.operands[0]) != 16:
            return None
        found = super().match(op, program)
        if not isinstance(found, Quantised):
            return found
        parts = scaled(found)
        if parts is None or shape_of(parts[0].value) != shape_of(op.results[0]):
            return None
        factors = [factor_of(found, use, program) for use in found.uses]
        if not all(factor > 0 and is_rescaled(factor, 2.0**15) for factor in factors):
            return Refusal("the number is not positive, or beyond what RESCALE reaches")
        return found

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """None but the number's own, which `match` weighs."""
        return []

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """One RESCALE."""
        parts = scaled(match)
        assert parts is not None
        factor = factor_of(match, use, program)
        return rescale(stored(parts[0].value, b), [factor], match.held, 0, 0, b)


def scaled(match: Quantised) -> tuple[Activation, Activation] | None:
    """What is multiplied, and the number."""
    first, second = match.inputs
    if is_one_element(second.value):
        return first, second
    return (second, first) if is_one_element(first.value) else None


def factor_of(match: Quantised, use: Use, program: Program) -> float:
    """What takes the integers to those of the product."""
    parts = scaled(match)
    assert parts is not None
    value, number = parts
    maker = number.value.owner
    assert isinstance(maker, Operation)
    key = weight_key(maker.operands[0])
    assert key is not None
    real = float(dequantize(program.weights.get(key), number.held).reshape(()))
    return value.held.scale * real / use.held.scale
