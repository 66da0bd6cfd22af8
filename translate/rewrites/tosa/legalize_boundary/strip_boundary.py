"""Boundary legalization: a quantized program takes and returns integers, as integer targets need.

An input that is only quantized becomes its integers, and so does a result that was only
dequantized. The scales are in the function's attributes `tosa.input_quantization`,
`tosa.output_quantization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from stepwell.translate.quantized.ports import (
    TakeIntegers,
    Types,
    quantized_input,
    quantized_output,
)


@dataclass(frozen=True)
class StripBoundary(TakeIntegers):
    """Replace quantized inputs and outputs by integers in the method's signature."""

    name: ClassVar[str] = "strip-boundary"
    LEVEL: ClassVar[str] = "tosa"

    def types(self, func: FuncOp) -> Types:
        taken = [quantized_input(argument) for argument in func.body.block.args]
        returned = cast(ReturnOp, func.body.block.last_op).operands
        given = [quantized_output(value) for value in returned]
        return [_type(found) for found in taken], [_type(found) for found in given]


def _type(found: Attribute | str) -> Attribute | None:
    return None if isinstance(found, str) else found
