"""Strength reduction: sum the inputs of experts per token, and multiply by all experts at once.

A token's result is the weighted sum of its experts' results. The weight may be applied to an
expert's input instead. Written to the expert's columns (`scatter_add`), the rows of a token become
one row of a linear layer whose weight is all experts' weights concatenated, and that layer computes
the sum.

Before:
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
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x5x8xf32>
    %v, %i = aten.topk.default(%s, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %c = aten.view.default(%x, [6, 8, 1]) : (tensor<6x8xf32>) -> tensor<6x8x1xf32>
    %p = aten.view.default(%i, [6]) : (tensor<3x2xi64>) -> tensor<6xi64>
    %f = aten.view.default(%v, [6, 1]) : (tensor<3x2xf32>) -> tensor<6x1xf32>
    %0 = aten.view.default(%c, [3, 2, 8]) : (tensor<6x8x1xf32>) -> tensor<3x2x8xf32>
    %1 = aten.view.default(%f, [3, 2, 1]) : (tensor<6x1xf32>) -> tensor<3x2x1xf32>
    %2 = aten.mul.Tensor(%0, %1) : (tensor<3x2x8xf32>, tensor<3x2x1xf32>) -> tensor<3x2x8xf32>
    %3 = aten.view.default(%p, [3, 2, 1]) : (tensor<6xi64>) -> tensor<3x2x1xi64>
    %4 = aten.expand.default(%3, [3, 2, 8]) : (tensor<3x2x1xi64>) -> tensor<3x2x8xi64>
    %5 = aten.expand.default(dense<0.0>, [3, 4, 8]) : (tensor<1x1x1xf32>) -> tensor<3x4x8xf32>
    %6 = aten.scatter_add.default(%5, 1, %4, %2) : (tensor<3x4x8xf32>, tensor<3x2x8xi64>, tensor<3x2x8xf32>) -> tensor<3x4x8xf32>
    %7 = aten.view.default(%6, [3, 32]) : (tensor<3x4x8xf32>) -> tensor<3x32xf32>
    %8 = aten.permute.default(%w, [1, 0, 2]) : (tensor<4x5x8xf32>) -> tensor<5x4x8xf32>
    %9 = aten.view.default(%8, [5, 32]) : (tensor<5x4x8xf32>) -> tensor<5x32xf32>
    %10 = aten.linear.default(%7, %9) : (tensor<3x32xf32>, tensor<5x32xf32>) -> tensor<3x5xf32>
    %y = aten.view.default(%10, [3, 1, 5]) : (tensor<3x5xf32>) -> tensor<3x1x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import emit, expand, permute, put, size_of, view
from stepwell.translate.rewrites.experts.experts import WeightedSum, unready, weighted_sum


@dataclass(frozen=True)
class AddUpBeforeExperts(Rewrite[WeightedSum]):
    """`sum(w · bmm(index(W, topk), x))` to `linear(scatter_add(w · x, topk), W)`."""

    name: ClassVar[str] = "add-up-before-experts"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SumDimIntList,)
    bound: ClassVar[Bound] = roundings("products and sums in another order")

    def match(self, op: SchemaOp, program: Program) -> WeightedSum | Refusal | None:
        """Guards: a sum over the chosen rows; every reader of the places has a form by ranks."""
        found = weighted_sum(op)
        if found is None:
            return None
        return unready(found.expert.weights.choice, program) or found

    def deviates(self, match: WeightedSum, program: Program) -> Deviation | None:
        """A factor is applied to a product's operand instead of its result."""
        return REORDERED if match.factor is not None else None

    def build(self, match: WeightedSum, rw: Rewriter) -> None:
        """Build scaled rows in their experts' columns, one linear layer, and the biases' sum."""
        expert, choice = match.expert, match.expert.weights.choice
        inner, outer = expert.sizes
        rows = weighed(rw, match, expert.rows)
        rows_element = element(rows.type)
        places = view(rw, expert.weights.places, [choice.rows, choice.taken, 1])
        places = expand(rw, places, [choice.rows, choice.taken, inner])
        zero = rw.constant(torch.zeros(1, 1, 1, dtype=torch_dtype(rows_element)), "zero")
        columns = repeated(rw, zero, rows, (choice.among, inner))
        columns = emit(
            rw,
            aten.ScatterAddDefault.make(columns, 1, places, rows, result_types=[columns.type]),
        )
        columns = view(rw, columns, [choice.rows, choice.among * inner])
        order = [2, 0, 1] if expert.turned else [1, 0, 2]
        weights = permute(rw, expert.weights.table, order)
        weights = view(rw, weights, [outer, choice.among * inner])
        result_type = tensor([choice.rows, outer], rows_element)
        total = emit(rw, aten.LinearDefault.make(columns, weights, result_types=[result_type]))
        result = match.op.results[0]
        total = view(rw, total, dims(result.type))
        if match.bias is not None:
            biases = weighed(rw, match, match.bias)
            summed = aten.SumDimIntList.make(biases, [1], True, result_types=[result.type])
            added = aten.AddTensor.make(total, emit(rw, summed), result_types=[result.type])
            total = emit(rw, added)
        rw.replace(match.op, [total])


def repeated(rw: Rewriter, zero: SSAValue, rows: SSAValue, sizes: tuple[int, int]) -> SSAValue:
    """Build a zero as matrices, one for each row."""
    count = dims(rows.type)[0]
    number = count if isinstance(count, int) else size_of(rw, rows, 0)
    result = tensor([count, *sizes], element(zero.type))
    return emit(rw, aten.ExpandDefault.make(zero, [number, *sizes], result_types=[result]))


def weighed(rw: Rewriter, match: WeightedSum, rows: SSAValue) -> SSAValue:
    """Return the rows of each token separately, each times its factor."""
    choice = match.expert.weights.choice
    width = settled(extent_of(dims(rows.type)) // Size.of(choice.every))
    rows = view(rw, rows, [choice.rows, choice.taken, width])
    if match.factor is None:
        return rows
    factor = view(rw, match.factor, [choice.rows, choice.taken, 1])
    return put(rw, aten.MulTensor, rows, factor)
