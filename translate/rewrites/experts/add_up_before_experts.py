"""Strength reduction: sum the inputs of experts per token, and multiply by all experts at once.

A token's result is the weighted sum of its experts' results. The weight may be applied to an
expert's input instead. Written to the expert's columns (`scatter_add`), the rows of a token become
one input row of a linear layer whose weight is all experts' weights concatenated, and that layer
computes the sum.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers
from stepwell.translate.rewrites.building import emit, size_of
from stepwell.translate.rewrites.experts.experts import WeightedSum, unready, weighted_sum


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of applying a factor to a product's operand instead of its result."""
    found = weighted_sum(op)
    return REORDERED if found is not None and found.factor is not None else None


@lowers(
    "aten.sum.dim_IntList",
    to="aten",
    bound=roundings("products and sums in another order"),
    deviation=_loses,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>
    %v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %c = aten.view.default(%x, [6, 8, 1]) : (tensor<6x8xf32>) -> tensor<6x8x1xf32>
    %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
    %m = aten.index.Tensor(%w, [%p]) : (tensor<4x5x8xf32>, tensor<6xi64>) -> tensor<6x5x8xf32>
    %b = aten.bmm.default(%m, %c) : (tensor<6x5x8xf32>, tensor<6x8x1xf32>) -> tensor<6x5x1xf32>
    %r = aten.view.default(%b, [6, 5]) : (tensor<6x5x1xf32>) -> tensor<6x5xf32>
    %f = aten.view.default(%v, [6, 1]) : (tensor<3x2xf32>) -> tensor<6x1xf32>
    %q = aten.mul.Tensor(%r, %f) : (tensor<6x5xf32>, tensor<6x1xf32>) -> tensor<6x5xf32>
    %t = aten.view.default(%q, [3, 2, 5]) : (tensor<6x5xf32>) -> tensor<3x2x5xf32>
    %y = aten.sum.dim_IntList(%t, [1], true) : (tensor<3x2x5xf32>) -> tensor<3x1x5xf32>
    """,
)
def add_up_before_experts(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write `sum(w · bmm(index(W, topk), x))` as `linear(scatter_add(w · x, topk), W)`."""
    found = weighted_sum(op)
    if found is None:
        return None
    expert, choice = found.expert, found.expert.weights.choice
    no_refusal(unready(choice, b.program))
    inner, outer = expert.sizes
    rows = weighed(found, expert.rows, b)
    places = Value(expert.weights.places, b).view(choice.rows, choice.taken, 1)
    places = places.expand(choice.rows, choice.taken, inner)
    columns = zeros(rows, (choice.among, inner)).call(aten.ScatterAddDefault, 1, places, rows)
    columns = columns.view(choice.rows, choice.among * inner)
    weights = Value(expert.weights.table, b).permute([2, 0, 1] if expert.turned else [1, 0, 2])
    weights = weights.view(outer, choice.among * inner)
    total = columns.call(aten.LinearDefault, weights, shape=(choice.rows, outer))
    shape = dims(op.results[0].type)
    total = total.view(*shape)
    if found.bias is None:
        return total
    biases = weighed(found, found.bias, b)
    return total.call(aten.AddTensor, biases.call(aten.SumDimIntList, [1], True, shape=shape))


def zeros(rows: Value, sizes: tuple[int, int]) -> Value:
    """Build a tensor of zeros `[rows, *sizes]`, as an expanded constant."""
    zero = rows.constant(torch.zeros(1, 1, 1, dtype=torch_dtype(rows.dtype)), "zero")
    count = rows.shape[0]
    number = count if isinstance(count, int) else size_of(rows.b, rows.ssa, 0)
    result = tensor([count, *sizes], rows.dtype)
    repeated = aten.ExpandDefault.make(zero.ssa, [number, *sizes], result_types=[result])
    return Value(emit(rows.b, repeated), rows.b)


def weighed(found: WeightedSum, rows: SSAValue, b: Rewriter) -> Value:
    """Return the rows of each token, each multiplied by its factor."""
    choice = found.expert.weights.choice
    width = settled(extent_of(dims(rows.type)) // Size.of(choice.every))
    value = Value(rows, b).view(choice.rows, choice.taken, width)
    if found.factor is None:
        return value
    return value.call(aten.MulTensor, Value(found.factor, b).view(choice.rows, choice.taken, 1))


RULES = lowerings_of(__name__)
