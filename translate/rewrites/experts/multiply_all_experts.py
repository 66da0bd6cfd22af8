"""Strength reduction: multiply each token by every expert, then select its own experts' results.

The look-up of weights and the batched product become one linear layer and a `gather` of its
results, where that costs less (`translate/rewrites/experts/routing.py`). The gather reads the
indices of `topk`; `choose-by-rank` decomposes both into arithmetic.
"""

from __future__ import annotations

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers
from stepwell.translate.rewrites.experts.experts import (
    each_costs_more,
    expert_of,
    is_summed,
    repeated_rows,
    unready,
)


@lowers(
    "aten.bmm.default",
    to="aten",
    bound=roundings("the product may be summed in another order"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>
    %v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %r = aten.view.default(%x, [3, 1, 8]) : (tensor<3x8xf32>) -> tensor<3x1x8xf32>
    %e = aten.expand.default(%r, [3, 2, 8]) : (tensor<3x1x8xf32>) -> tensor<3x2x8xf32>
    %c = aten.view.default(%e, [6, 8, 1]) : (tensor<3x2x8xf32>) -> tensor<6x8x1xf32>
    %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
    %m = aten.index.Tensor(%w, [%p]) : (tensor<4x5x8xf32>, tensor<6xi64>) -> tensor<6x5x8xf32>
    %y = aten.bmm.default(%m, %c) : (tensor<6x5x8xf32>, tensor<6x8x1xf32>) -> tensor<6x5x1xf32>
    """,
)
def multiply_all_experts(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write `bmm(index(W, topk), x)` as `gather(linear(x, W), topk)`.

    Rows that are repeated once per chosen expert are multiplied before they are repeated.
    """
    expert = expert_of(op)
    if expert is None:
        return None
    choice, rows = expert.weights.choice, repeated_rows(expert)
    if rows is None and is_summed(expert):
        return None
    no_refusal(unready(choice, b.program))
    count, taken = choice.rows, choice.taken
    if rows is None:
        no_refusal(each_costs_more(expert, b.program))
        rows, count, taken = expert.rows, choice.every, 1
    inner, outer = expert.sizes
    weights = Value(expert.weights.table, b)
    if expert.turned:
        weights = weights.permute([0, 2, 1])
    weights = weights.view(choice.among * outer, inner)
    shape = count, choice.among * outer
    product = Value(rows, b).view(count, inner).call(aten.LinearDefault, weights, shape=shape)
    product = product.view(count, choice.among, outer)
    places = Value(expert.weights.places, b).view(count, taken, 1).expand(count, taken, outer)
    picked = product.call(aten.GatherDefault, 1, places, shape=(count, taken, outer))
    return picked.view(*dims(op.results[0].type))


RULES = lowerings_of(__name__)
