"""Let a linear layer read its input before a view that only regroups leading axes.

Decomposition flattens `[B, N, C]` to `[B·N, C]` around every product. Below the linear layer the
view meets the one that restores the shape, and both go.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %v = aten.view.default(%x, [6, 4]) : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
    %y = aten.linear.default(%v, %w) : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
    %y = aten.view.default(%l, [6, 5]) : (tensor<2x3x5xf32>) -> tensor<6x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import cannot_be_viewed_as, emit, view


@dataclass(frozen=True)
class LinearOfView:
    """A linear layer of a view, and the view's source."""

    op: SchemaOp
    source: SSAValue


@dataclass(frozen=True)
class SinkViewBelowLinear(Rewrite[LinearOfView]):
    """`linear(view(x))` to `view(linear(x))` where the view keeps the last axis."""

    name: ClassVar[str] = "sink-view-below-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = roundings("a batched GEMM may sum in another order")

    def match(self, op: SchemaOp, program: Program) -> LinearOfView | Refusal | None:
        """Guards: the last axis is kept, no reader of the view but linears."""
        layout = op.operands[0].owner
        if not isinstance(layout, aten.ViewDefault):
            return None
        source = layout.operands[0]
        held = dims(source.type)
        if len(held) < 2 or held[-1] != dims(op.operands[0].type)[-1]:
            return None
        if len(dims(op.operands[1].type)) != 2:
            return Refusal("the weight is a vector: the result has no features")
        for use in layout.results[0].uses:
            if not isinstance(use.operation, aten.LinearDefault) or use.index != 0:
                return Refusal(f"{use.operation.name} reads the view too")
        return cannot_be_viewed_as(source, dims(op.results[0].type)) or LinearOfView(op, source)

    def build(self, match: LinearOfView, rw: Rewriter) -> None:
        """The linear on the source, then the view."""
        op = match.op
        result = op.results[0]
        shape = [*dims(match.source.type)[:-1], dims(result.type)[-1]]
        new = aten.LinearDefault.make(
            match.source, *op.operands[1:], result_types=[tensor(shape, element(result.type))]
        )
        rw.replace(op, [view(rw, emit(rw, new), dims(result.type))])
