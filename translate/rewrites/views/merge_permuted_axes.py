"""Permute fewer axes: those of size one drop out, those that stay neighbours are one.

Engines move tensors of up to six axes. A video's patches have eight, `[B, T, H, W, t, h, w, C]`,
of which some are of size one. Where more than six are left, blocks of axes change places one after
the other, which takes four axes at a time.

Before:
    %y = aten.permute.default(%x, [0, 6, 1, 2, 3, 4, 5]) : (tensor<1x2x3x1x2x2x5xf32>) -> tensor<1x5x2x3x1x2x2xf32>
After:
    %0 = aten.view.default(%x, [24, 5]) : (tensor<1x2x3x1x2x2x5xf32>) -> tensor<24x5xf32>
    %1 = aten.permute.default(%0, [1, 0]) : (tensor<24x5xf32>) -> tensor<5x24xf32>
    %y = aten.view.default(%1, [1, 5, 2, 3, 1, 2, 2]) : (tensor<5x24xf32>) -> tensor<1x5x2x3x1x2x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.limits import EIGHT_K
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis, permute, static_dims, view

MOST_AXES = min(MAX_RANK, EIGHT_K.rank)
"""Axes of a tensor that every target moves."""


@dataclass(frozen=True)
class ManyAxes:
    """A permute as blocks of neighbours: `sizes[i]` elements each, in the order `order`."""

    op: SchemaOp
    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class MergePermutedAxes(Rewrite[ManyAxes]):
    """A permute of more axes than engines have, by fewer."""

    name: ClassVar[str] = "merge-permuted-axes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PermuteDefault,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> ManyAxes | Refusal | None:
        """Guards: more than six axes, all of known size."""
        rank = len(dims(op.operands[0].type))
        if rank <= MOST_AXES:
            return None
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("its sizes are known only at run time")
        order = [d for d in (axis(n, rank) for n in op.arg("dims")) if shape[d] != 1]
        apart = [i for i, d in enumerate(order) if i == 0 or not _follows(order[i - 1], d, shape)]
        blocks = [order[i:j] for i, j in zip(apart, [*apart[1:], len(order)], strict=True)]
        rising = sorted(blocks)
        sizes = tuple(prod(shape[d] for d in block) for block in rising)
        return ManyAxes(op, sizes, tuple(rising.index(block) for block in blocks))

    def build(self, match: ManyAxes, rw: Rewriter) -> None:
        """One permute where the blocks are few, else a block to its place at a time."""
        value = match.op.operands[0]
        if len(match.order) <= MOST_AXES:
            value = permute(rw, view(rw, value, match.sizes), match.order)
        else:
            value = _one_by_one(value, match, rw)
        rw.replace(match.op, [view(rw, value, dims(match.op.results[0].type))])


def _follows(one: int, other: int, shape: tuple[int, ...]) -> bool:
    """Whether nothing but axes of size one stands between two axes."""
    return one < other and all(size == 1 for size in shape[one + 1 : other])


def _one_by_one(value: SSAValue, match: ManyAxes, rw: Rewriter) -> SSAValue:
    held = list(range(len(match.order)))
    for place, block in enumerate(match.order):
        at = held.index(block)
        if at == place:
            continue
        parts = (held[:place], held[place:at], [block], held[at + 1 :])
        sizes = [prod(match.sizes[i] for i in part) for part in parts]
        value = permute(rw, view(rw, value, sizes), (0, 2, 1, 3))
        held = [i for part in (parts[0], parts[2], parts[1], parts[3]) for i in part]
    return value
