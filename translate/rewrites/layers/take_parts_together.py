"""Do what parts of a value go through to all of it, and part it behind.

    linear(x[:, t], W, b) = linear(x, W, b)[:, t]

A recurrent cell called step by step multiplies each step's inputs alone, and reads its weights from
memory for each. Gates cut from one product go through one function each.

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

rule gates-together
    A function of parts of a value to parts of the function of all of it.
Before:
    %s = aten.slice.Tensor(%x, …)
    %y = aten.$op.default(%s)
After:
    %f = aten.$op.default(%x)
    %y = aten.slice.Tensor(%f, …)
with $bounds = bounds_of(%s)
where reads_once(%s) for cost else "the part is read by others too"
where not cuts_layer(%x, $bounds) for cost
    else "a layer's outputs, which may be cut instead"
where is_less_at_once(%y, %s, $bounds) for cost else "all of it takes no less than its parts"
for each $op of sigmoid, tanh
for %x = "tensor<2x6xf32>", $dim = 1, $start = 0, $end = 2
for %z = aten.$op.default(%x)
not for %r = aten.neg.default(%s)
not for %z = aten.neg.default(%x)
not for %i = "tensor<2x4xf32>"; %w = weight : tensor<6 x 4 x f32>; %x = aten.linear.default(%i, %w)
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
    cuts_outputs,
    static_bounds,
)
from stepwell.translate.rules import read_rules

MOST_READERS = 1024
"""Readers of a value that are looked at."""


def leaves_features(part: SSAValue, bounds: Part) -> bool:
    """Whether a part has all features of its rows."""
    return bounds[0] != len(dims(part.type)) - 1


def is_less_in_one(product: SSAValue, part: SSAValue, bounds: Part, program: Program) -> bool:
    """Whether one layer and slices of its result cost less than a layer for each part.

    What the parts are sliced from may be read by others: those slices count as standing in both.
    """
    if is_done(product, part):  # Which is asked first: of many steps, all but one see it at once.
        return True
    costs, alike = costs_of(program.context), results_alike(product, part, bounds)
    width, dim = (estimated([size]) for size in dims(_op(product).operands[1].type))
    layer = costs.node + costs.weight * width * dim
    rows = estimated(dims(_op(part).operands[0].type)) // dim
    parts = sum(estimated(dims(value.type)) for value in alike)
    apart = len(alike) * layer + parts * costs.product * dim
    parting = len(alike) * costs.node + parts * costs.slice
    return layer + rows * width * costs.product * dim + parting < apart


def is_less_at_once(result: SSAValue, part: SSAValue, bounds: Part, program: Program) -> bool:
    """Whether a function of all elements costs less than one of each part, of which slices stay."""
    if is_done(result, part):
        return True
    costs, alike = costs_of(program.context), results_alike(result, part, bounds)
    whole = estimated(dims(_op(part).operands[0].type))
    parts = sum(estimated(dims(value.type)) for value in alike)
    apart = len(alike) * costs.node + parts * costs.element
    return costs.node + whole * costs.element < apart


def cuts_layer(value: SSAValue, bounds: Part) -> bool:
    """Whether `split-linear` can give each part a layer of its own."""
    return cuts_outputs(value, bounds[0])


def is_done(result: SSAValue, part: SSAValue) -> bool:
    """Whether what is done to a part is done to all of it already."""
    return any(_do_alike(use.operation, _op(result)) for use in _readers(_op(part).operands[0]))


def results_alike(result: SSAValue, part: SSAValue, bounds: Part) -> list[SSAValue]:
    """What ops like the one of this result give of parts along the same axis."""
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
