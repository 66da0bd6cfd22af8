"""Add up products of halves in single precision, where that is asked for.

Whether XNNPACK's kernels for halves add up in halves is the CPU's: those with half arithmetic
(Armv8.2 and later) do, so that a sum of K products is off by K roundings of a half, 0.015 for a
layer with 4096 inputs, 0.08 of the sum where all are positive. `lower(..., half="accumulate in
f32")` computes layers and products in f32 between casts, as torch does, for twice the bytes of
their weights and the time of float32.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf16>
    %y = aten.linear.default(%x, %w) : (tensor<2x4xf16>, tensor<3x4xf16>) -> tensor<2x3xf16>
After:
    %w = stepwell.weight <"w#single.2f8e1bd2a7c2"> "constant" : tensor<3x4xf32>
    %0 = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %1 = aten.linear.default(%0, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = aten._to_copy.default(%1, dtype=f16) : (tensor<2x3xf32>) -> tensor<2x3xf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.xnnpack.floats.widen_halves import (
    ONCE,
    compute_in_single,
    not_halves,
)

IN_SINGLE = "accumulate in f32"
"""The value of `lower(..., half=...)` that asks for it."""


@dataclass(frozen=True)
class WidenProductsOfHalves(Rewrite[SchemaOp]):
    """Linear layers, convolutions and matrix products of halves, in f32 between casts."""

    name: ClassVar[str] = "widen-products-of-halves"
    bound: ClassVar[Bound] = ONCE
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.LinearDefault,
        aten.ConvolutionDefault,
        aten.MatmulDefault,
        aten.BmmDefault,
        aten.MmDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: it is asked for, halves of a shape XNNPACK holds."""
        if program.context.option("half", IN_SINGLE) != IN_SINGLE or not_halves(op):
            return None
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The operator between casts."""
        compute_in_single(rw, match)
