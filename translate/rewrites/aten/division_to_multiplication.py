"""Multiply by the reciprocal instead of dividing, where that is exact.

Division by a power of two and multiplication by its reciprocal round the same real number. Any
other divisor stays: 1/3 is rounded once before the product is.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.div.Scalar(%x, 8.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.mul.Scalar(%x, 0.125) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import is_float, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class DivisionToMultiplication(Respell):
    """`x / 2**k` to `x * 2**-k`."""

    name: ClassVar[str] = "division-to-multiplication"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.DivScalar,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """A float tensor divided by a power of two whose reciprocal is normal."""
        value, divisor = op.operands[0], op.arg("other")
        if not is_float(element(value.type)) or not isinstance(divisor, int | float):
            return None
        smallest = torch.finfo(torch_dtype(element(value.type))).tiny
        if not is_power_of_two(divisor) or not smallest <= abs(1 / divisor) <= 1 / smallest:
            return Refusal(f"1/{divisor} is not exact: multiplying by it would round twice")
        return Respelled(op, aten.MulScalar, {"self": value, "other": 1 / divisor})


def is_power_of_two(number: float) -> bool:
    """Whether a number is ±2**k."""
    return number != 0 and isfinite(number) and abs(frexp(number)[0]) == 0.5
