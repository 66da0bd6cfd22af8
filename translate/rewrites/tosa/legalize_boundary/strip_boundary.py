"""Boundary legalization: a quantized program takes and returns integers, as integer targets need.

An input that is only quantized becomes its integers, and so does a result that was only
dequantized. The scales are in the function's attributes `tosa.input_quantization`,
`tosa.output_quantization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from stepwell.dialects.quant import DequantizeCast, QuantizeCast
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Converted, History, Pass
from stepwell.translate.quantized.ports import quantizers, take_integers


@dataclass(frozen=True)
class StripBoundary(Pass):
    """Make quantized inputs and outputs those of the method."""

    name: ClassVar[str] = "strip-boundary"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of inputs and outputs changed."""
        return sum(
            take_integers(method, "tosa", quantized_inputs(method), quantized_outputs(method))
            for method in program.methods.values()
        )

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Return the leading quantizers and the trailing dequantizers that move to the caller."""
        return quantizers(quantized_inputs(func)), quantizers(quantized_outputs(func))


def quantized_inputs(func: FuncOp) -> list[Attribute | None]:
    """Return the type of each input that is only quantized, to that one type."""
    attributes: list[Attribute | None] = []
    for argument in func.body.block.args:
        users = [use.operation for use in argument.uses]
        kinds = {user.results[0].type for user in users if isinstance(user, QuantizeCast)}
        alone = len(kinds) == 1 and all(isinstance(user, QuantizeCast) for user in users)
        attributes.append(kinds.pop() if alone else None)
    return attributes


def quantized_outputs(func: FuncOp) -> list[Attribute | None]:
    """Return the type of each output that was dequantized last."""
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    makers = [value.owner for value in last.operands]
    return [maker.input.type if isinstance(maker, DequantizeCast) else None for maker in makers]
