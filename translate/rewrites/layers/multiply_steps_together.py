"""Batching: apply an op of several parts of a value to the whole value, and split the result.

    linear(x[:, t], W, b) = linear(x, W, b)[:, t]

A recurrent cell called step by step multiplies each step's inputs separately, and reads its weights
from memory for each step.

rule multiply-steps-together
    Layers of one weight over parts of a value to one layer and parts of its result.
Before:
    %s = aten.slice.Tensor(%x, …)
    %y = aten.linear.default(%s, %w, $b)
After:
    %l = aten.linear.default(%x, %w, $b)
    %y = aten.slice.Tensor(%l, …)
where is_matrix(%w) else "the weight is a vector: its layer has no axis of outputs"
with $bounds = bounds_of(%s)
where leaves_features(%s, $bounds) else "a part of the features is what the layer multiplies"
where is_less_in_one(%y, %s, $bounds) for cost else "one layer takes no less than those of the parts"
bound of roundings: "a GEMM of another height may sum in another order"
for %w = weight : tensor<32 x 32 x f32>
for %x = "tensor<2x3x32xf32>", $dim = 1, $start = 0, $end = 1
for %z = aten.linear.default(%x, %w, $b)
not for %w = weight : tensor<32 x f32>; $dim = -2
not for %x = "tensor<2x3x64xf32>", $dim = 2, $end = 32; %t = aten.slice.Tensor(%x, 2, 32, 64, 1);
    %z = aten.linear.default(%t, %w)
not for %z = aten.neg.default(%x)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from xdsl.ir import Operation, SSAValue, Use

from stepwell.dialects import aten
from stepwell.dialects.xnnpack.costs import costs_of, estimated
from stepwell.ir.program import Program
from stepwell.ir.types import dims
from stepwell.translate.rewrites.layers import sink_view_below_linear
from stepwell.translate.rewrites.slices import hoist_slice_over_layout
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import (
    Part,
    static_bounds,
)
from stepwell.translate.rules import read_rules

MOST_READERS = 1024
"""The most readers of a value that are examined."""


def leaves_features(part: SSAValue, bounds: Part) -> bool:
    """Whether a part has all features of its rows."""
    return bounds[0] != len(dims(part.type)) - 1


def is_less_in_one(product: SSAValue, part: SSAValue, bounds: Part, program: Program) -> bool:
    """Whether one layer on the whole value, with slices of its result, costs less than a layer per
    part.

    Other ops may read the value that the parts are sliced from: its slices count in both costs.
    """
    if is_done(product, part):  # Checked first: with many steps, all but one fail here.
        return True
    costs, alike = costs_of(program.context), results_alike(product, part, bounds)
    width, dim = (estimated([size]) for size in dims(_op(product).operands[1].type))
    layer = costs.node + costs.weight * width * dim
    rows = estimated(dims(_op(part).operands[0].type)) // dim
    parts = sum(estimated(dims(value.type)) for value in alike)
    apart = len(alike) * layer + parts * costs.product * dim
    parting = len(alike) * costs.node + parts * costs.slice
    return layer + rows * width * costs.product * dim + parting < apart


def is_done(result: SSAValue, part: SSAValue) -> bool:
    """Whether the op is already applied to the whole value."""
    return any(_do_alike(use.operation, _op(result)) for use in _readers(_op(part).operands[0]))


def results_alike(result: SSAValue, part: SSAValue, bounds: Part) -> list[SSAValue]:
    """Return the results of equal ops on parts along the same axis."""
    found = list[SSAValue]()
    for use in _readers(_op(part).operands[0]):
        other = (
            static_bounds(use.operation) if isinstance(use.operation, aten.SliceTensor) else None
        )
        if other is not None and other[0] == bounds[0]:
            after = _readers(use.operation.results[0])
            found += [u.operation.results[0] for u in after if _do_alike(u.operation, _op(result))]
    return found


def _do_alike(one: Operation, other: Operation) -> bool:
    return type(one) is type(other) and [*one.operands[1:]] == [*other.operands[1:]]


def _readers(value: SSAValue) -> Iterator[Use]:
    return (use for use in islice(value.uses, MOST_READERS) if use.index == 0)


def _op(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation)
    return value.owner


RULES = read_rules(
    __doc__, vars(sink_view_below_linear) | vars(hoist_slice_over_layout) | globals()
)
