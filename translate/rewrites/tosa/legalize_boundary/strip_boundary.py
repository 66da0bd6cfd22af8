"""Let a quantized program take and give integers, as an integer target needs.

An input that is only quantized becomes its integers, a result that was only dequantized too; the
scales stand in the function's attributes `tosa.input_quantization`, `tosa.output_quantization`.
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
    """Quantized inputs and outputs become the method's own."""

    name: ClassVar[str] = "strip-boundary"

    def apply(self, program: Program, history: History) -> int:
        """The number of inputs and outputs changed."""
        return sum(
            take_integers(method, "tosa", quantized_inputs(method), quantized_outputs(method))
            for method in program.methods.values()
        )

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Quantize what was quantized first, and what was dequantized last."""
        return quantizers(quantized_inputs(func)), quantizers(quantized_outputs(func))


def quantized_inputs(func: FuncOp) -> list[Attribute | None]:
    """The type of each input that is only quantized, to that one type."""
    attributes: list[Attribute | None] = []
    for argument in func.body.block.args:
        users = [use.operation for use in argument.uses]
        kinds = {user.results[0].type for user in users if isinstance(user, QuantizeCast)}
        alone = len(kinds) == 1 and all(isinstance(user, QuantizeCast) for user in users)
        attributes.append(kinds.pop() if alone else None)
    return attributes


def quantized_outputs(func: FuncOp) -> list[Attribute | None]:
    """The type of each output that was dequantized last."""
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    makers = [value.owner for value in last.operands]
    return [maker.input.type if isinstance(maker, DequantizeCast) else None for maker in makers]
