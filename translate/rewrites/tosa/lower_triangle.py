"""`tril` and `triu`: a choice by a constant mask.

Before:
    func.func @forward(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
      %y = aten.tril.default(%x) : (tensor<3x3xf32>) -> tensor<3x3xf32>
      func.return %y : tensor<3x3xf32>
    }
After:
    func.func @forward(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
      %0 = stepwell.weight <"constant#673a53f07e6a"> "constant" : tensor<3x3xi1>
      %1 = stepwell.weight <"constant#8ad8c8b97325"> "constant" : tensor<1x1xf32>
      %y = tosa.select %0, %x, %1 : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<1x1xf32>) -> tensor<3x3xf32>
      func.return %y : tensor<3x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.limits import LARGEST_BYTES
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_known


@dataclass(frozen=True)
class LowerTriangle(LowerToTosa):
    """`tril` and `triu` to SELECT."""

    name: ClassVar[str] = "lower-triangle-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.TrilDefault, aten.TriuDefault)
    bound: ClassVar[Bound] = EXACT
    takes_symbols: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Matrices of known size, a diagonal that is a number."""
        if not isinstance(op.arg("diagonal"), int):
            return Refusal("the diagonal is known only at run time")
        refusal = needs_known(op.operands[0], (-2, -1), "matrices of size")
        if refusal is not None:
            return refusal
        rows, columns = shape_of(op.operands[0])[-2:]
        if rows * columns > LARGEST_BYTES:  # A constant is made of it.
            return Refusal(f"a mask of {rows} × {columns} is above {LARGEST_BYTES} bytes")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One SELECT."""
        x = op.operands[0]
        shape = shape_of(x)
        ones = torch.ones(*shape[-2:], dtype=torch.bool)
        lower = isinstance(op, aten.TrilDefault)
        kept = (ones.tril if lower else ones.triu)(op.arg("diagonal"))
        mask = b.of_rank(b.constant(kept), len(shape))
        return b.op(t.SelectOp, [mask, x, b.splat(0, x)], shape, element(x.type))
