"""Cut a fused projection whose output is only ever read in slices of its features.

    linear(x, W, c)[..., a:b] = linear(x, W[a:b], c[a:b])

The slices cost copies at run time; cut weights cost nothing, and each part can take in what
follows it (a scale, a bias).

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<6x4xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<6x4xf32>) -> tensor<2x6xf32>
    %y = aten.slice.Tensor(%l, 1, 2, 4, 1) : (tensor<2x6xf32>) -> tensor<2x2xf32>
After:
    %0 = stepwell.weight <"w#rows.c2392ed66a0e"> "constant" : tensor<2x4xf32>
    %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import UNKNOWN_SIZE, Costs, costs_of
from stepwell.ir.bounds import roundings
from stepwell.ir.choices import shape_of
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import become
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import static_bounds


@recipe("rows", lambda held: held["start"])
def rows(tensor: torch.Tensor, *, start: int, stop: int) -> torch.Tensor:
    """Output features `start:stop` of a weight `[out, …]` or bias `[out]`; a view."""
    return tensor[start:stop]


@dataclass(frozen=True)
class SlicedLinear:
    """A slice of a linear's output features."""

    op: SchemaOp
    linear: SchemaOp
    start: int
    stop: int


@dataclass(frozen=True)
class SplitLinear(Rewrite[SlicedLinear]):
    """`linear(x)[..., a:b]` to a linear with those rows of the weight."""

    name: ClassVar[str] = "split-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)
    bound: ClassVar[Bound] = roundings("a GEMM of another width sums in another order")

    def match(self, op: SchemaOp, program: Program) -> SlicedLinear | Refusal | None:
        """Guards: last axis, static bounds, all readers are disjoint slices, constant weights."""
        linear = op.operands[0].owner
        if not isinstance(linear, aten.LinearDefault):
            return None
        rank = len(dims(op.operands[0].type))
        ranges: list[tuple[int, int]] = []
        mine: tuple[int, int] | None = None
        for use in linear.results[0].uses:
            user = use.operation
            bounds = static_bounds(user) if isinstance(user, aten.SliceTensor) else None
            if bounds is None or bounds[0] != rank - 1:
                return Refusal("the fused output is read whole too")
            ranges.append(bounds[1:])
            if user is op:
                mine = bounds[1:]
        assert mine is not None
        ranges.sort()
        if any(stop > start for (_, stop), (start, _) in pairwise(ranges)):
            return Refusal("slices overlap: their features would be computed twice")
        bias = linear.operand("bias")
        if weight_key(linear.operands[1]) is None or (bias is not None and not weight_key(bias)):
            return Refusal("the linear's weights are computed at run time")
        costs = costs_in_parts(linear, len(ranges), costs_of(program.context))
        if program.context.choose(self.name, shape_of(linear), costs) == "fused":
            return Refusal("a table says that slices of the fused output cost less")
        return SlicedLinear(op, linear, *mine)

    def build(self, match: SlicedLinear, rw: Rewriter) -> None:
        """Derive the rows; the fused linear goes with its last slice."""
        linear, store = match.linear, rw.weights
        weight, bias = weight_key(linear.operands[1]), linear.operand("bias")
        assert weight is not None
        part = {"start": match.start, "stop": match.stop}
        bias_key = weight_key(bias) if bias is not None else None
        become(
            rw,
            match.op,
            aten.LinearDefault,
            linear.operands[0],
            rw.weight(store.derive("rows", [weight], **part)),
            rw.weight(store.derive("rows", [bias_key], **part)) if bias_key else None,
        )


def costs_in_parts(linear: SchemaOp, parts: int, costs: Costs) -> dict[str, float]:
    """Nanoseconds of a linear layer in parts, and of a fused one whose output is sliced."""
    *rows, width = (size if isinstance(size, int) else UNKNOWN_SIZE for size in
                    dims(linear.results[0].type))  # fmt: skip
    count, given = prod(rows), dims(linear.operands[1].type)[-1]
    assert isinstance(given, int)
    products = (count * costs.product + costs.weight) * width * given
    slices = count * width * costs.slice + parts * costs.node
    return {"in parts": products + parts * costs.node, "fused": products + costs.node + slices}
