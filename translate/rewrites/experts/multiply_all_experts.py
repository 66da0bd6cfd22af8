"""Strength reduction: multiply each token by every expert, then select its own experts' results.

The look-up of weights and the batched product become one linear layer and a `gather` of its
results, where that costs less (`translate/rewrites/experts/routing.py`). The gather reads the
indices of `topk`; `choose-by-rank` decomposes both into arithmetic.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>
    %v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %r = aten.view.default(%x, [3, 1, 8]) : (tensor<3x8xf32>) -> tensor<3x1x8xf32>
    %e = aten.expand.default(%r, [3, 2, 8]) : (tensor<3x1x8xf32>) -> tensor<3x2x8xf32>
    %c = aten.view.default(%e, [6, 8, 1]) : (tensor<3x2x8xf32>) -> tensor<6x8x1xf32>
    %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
    %m = aten.index.Tensor(%w, [%p]) : (tensor<4x5x8xf32>, tensor<6xi64>) -> tensor<6x5x8xf32>
    %y = aten.bmm.default(%m, %c) : (tensor<6x5x8xf32>, tensor<6x8x1xf32>) -> tensor<6x5x1xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>
    %v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %r = aten.view.default(%x, [3, 1, 8]) : (tensor<3x8xf32>) -> tensor<3x1x8xf32>
    %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
    %0 = aten.view.default(%w, [20, 8]) : (tensor<4x5x8xf32>) -> tensor<20x8xf32>
    %1 = aten.view.default(%r, [3, 8]) : (tensor<3x1x8xf32>) -> tensor<3x8xf32>
    %2 = aten.linear.default(%1, %0) : (tensor<3x8xf32>, tensor<20x8xf32>) -> tensor<3x20xf32>
    %3 = aten.view.default(%2, [3, 4, 5]) : (tensor<3x20xf32>) -> tensor<3x4x5xf32>
    %4 = aten.view.default(%p, [3, 2, 1]) : (tensor<6xi64>) -> tensor<3x2x1xi64>
    %5 = aten.expand.default(%4, [3, 2, 5]) : (tensor<3x2x1xi64>) -> tensor<3x2x5xi64>
    %6 = aten.gather.default(%3, 1, %5) : (tensor<3x4x5xf32>, tensor<3x2x5xi64>) -> tensor<3x2x5xf32>
    %y = aten.view.default(%6, [6, 5, 1]) : (tensor<3x2x5xf32>) -> tensor<6x5x1xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import emit, expand, permute, view
from stepwell.translate.rewrites.experts.experts import (
    Expert,
    each_costs_more,
    expert_of,
    is_summed,
    repeated_rows,
    unready,
)


@dataclass(frozen=True)
class EveryExpert:
    """A product with the experts of each row.

    Attributes:
        expert: the product.
        rows: the rows multiplied by all experts, before they were repeated per chosen expert.
        count: the number of these rows.
        taken: the number of results of each row.
    """

    expert: Expert
    rows: SSAValue
    count: Dim
    taken: int


@dataclass(frozen=True)
class MultiplyAllExperts(Rewrite[EveryExpert]):
    """`bmm(index(W, topk), x)` to `gather(linear(x, W), topk)`."""

    name: ClassVar[str] = "multiply-all-experts"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    bound: ClassVar[Bound] = roundings("the product may be summed in another order")

    def match(self, op: SchemaOp, program: Program) -> EveryExpert | Refusal | None:
        """Guards: no sum that reads the product is better; all index readers have a form."""
        expert = expert_of(op)
        if expert is None:
            return None
        choice, rows = expert.weights.choice, repeated_rows(expert)
        if rows is not None:
            shared = EveryExpert(expert, rows, choice.rows, choice.taken)
            return unready(choice, program) or shared
        if is_summed(expert):
            return None
        own = EveryExpert(expert, expert.rows, choice.every, 1)
        return unready(choice, program) or each_costs_more(expert, program) or own

    def build(self, match: EveryExpert, rw: Rewriter) -> None:
        """Build the linear layer of all experts, the gather, and the shape of the product."""
        expert, choice = match.expert, match.expert.weights.choice
        inner, outer = expert.sizes
        weights = expert.weights.table
        if expert.turned:
            weights = permute(rw, weights, [0, 2, 1])
        weights_element = element(weights.type)
        weights = view(rw, weights, [choice.among * outer, inner])
        rows = view(rw, match.rows, [match.count, inner])
        result_type = tensor([match.count, choice.among * outer], weights_element)
        product = emit(rw, aten.LinearDefault.make(rows, weights, result_types=[result_type]))
        product = view(rw, product, [match.count, choice.among, outer])
        places = view(rw, expert.weights.places, [match.count, match.taken, 1])
        places = expand(rw, places, [match.count, match.taken, outer])
        picked = tensor([match.count, match.taken, outer], weights_element)
        product = emit(rw, aten.GatherDefault.make(product, 1, places, result_types=[picked]))
        rw.replace(expert.op, [view(rw, product, dims(expert.op.results[0].type))])
