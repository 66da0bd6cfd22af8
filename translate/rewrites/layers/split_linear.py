"""Split a fused projection whose output is only read in slices of its features.

    linear(x, W, c)[..., a:b] = linear(x, W[a:b], c[a:b])

The slices cost copies at run time. Split weights cost nothing, and each part can absorb the ops
that follow it (a scale, a bias).

rule split-linear
    `linear(x)[..., a:b]` to a linear with those rows of the weight; the fused one goes with its
    last slice.
Before:
    %l = aten.linear.default(%x, %w, $b)
    %y = aten.slice.Tensor(%l, …)
After:
    %r = weight rows(%w, $part)
    %c = rows_of($b, $part)
    %y = aten.linear.default(%x, %r, %c)
with $part = own_part(%l, %y)
where are_constants(%w, $b) else "the linear's weights are computed at run time"
where cost_less_in_parts(%l) for choice else "a table says that slices of the fused output cost less"
bound of roundings: "a GEMM of another width sums in another order"
for %w = weight : tensor<6 x 4 x f32>
for %x = "tensor<2x4xf32>", $dim = 1, $start = 2, $end = 4
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import Costs, costs_of, estimated
from stepwell.ir.choices import shape_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import static_bounds
from stepwell.translate.rules import read_rules

ROWS = "rows"
"""The recipe of some output features of a weight or bias."""


@recipe(ROWS, lambda held: held["start"])
def rows(tensor: torch.Tensor, *, start: int, stop: int) -> torch.Tensor:
    """Return output features `start:stop` of a weight `[out, …]` or bias `[out]`; a view."""
    return tensor[start:stop]


def own_part(fused: SSAValue, part: SSAValue) -> Mapping[str, int] | Refusal:
    """Return the features that only this slice reads, if only such slices read the layer."""
    last, ranges = len(dims(fused.type)) - 1, list[tuple[int, int]]()
    own: Mapping[str, int] = {}
    for use in fused.uses:
        reader = use.operation
        bounds = static_bounds(reader) if isinstance(reader, aten.SliceTensor) else None
        if bounds is None or bounds[0] != last:
            return Refusal("another op reads the whole result of the layer")
        ranges.append(bounds[1:])
        if reader is part.owner:
            own = {"start": bounds[1], "stop": bounds[2]}
    ranges.sort()
    if any(stop > start for (_, stop), (start, _) in pairwise(ranges)):
        return Refusal("slices overlap: their features would be computed twice")
    return own


def are_constants(*values: SSAValue | None) -> bool:
    """Whether the operands that are present are weights of the program."""
    return all(value is None or weight_key(value) is not None for value in values)


def cost_less_in_parts(fused: SSAValue, program: Program) -> bool:
    """Whether a linear layer in parts costs no more than one with slices; true without a cost
    table.
    """
    linear = cast(SchemaOp, fused.owner)
    costs = costs_in_parts(linear, fused.uses.get_length(), costs_of(program.context))
    return program.context.choose("split-linear", shape_of(linear), costs) != "fused"


def rows_of(rw: Rewriter, bias: SSAValue | None, part: Mapping[str, int]) -> SSAValue | None:
    """Return the elements of an optional bias that belong to some features."""
    key = None if bias is None else weight_key(bias)
    return None if key is None else rw.weight(rw.weights.derive("rows", [key], **part))


def costs_in_parts(linear: SchemaOp, parts: int, costs: Costs) -> dict[str, float]:
    """Return the nanoseconds of a linear layer in parts, and of the whole layer with slices."""
    *rows, features = dims(linear.results[0].type)
    count, width = estimated(rows), estimated([features])
    dim = dims(linear.operands[1].type)[-1]
    assert isinstance(dim, int)
    products = (count * costs.product + costs.weight) * width * dim
    slices = count * width * costs.slice + parts * costs.node
    return {"in parts": products + parts * costs.node, "fused": products + costs.node + slices}


(SplitLinear,) = RULES = read_rules(__doc__, globals())
