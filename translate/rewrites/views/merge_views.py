"""Canonicalization: merge consecutive views, and permutes that are views.

rule merge-views
    Of a view of a view only the last shape counts.
Before:
    %a = aten.view.default(%x, …)
    %y = aten.view.default(%a, …)
After:
    %y = viewed(%x, %y)
unless has_no_view(%x, %y)
for $size = [6], %x = "tensor<2x3xf32>"
not for %p = aten.sym_size.int(%i, 0); %q = aten.sym_size.int(%i, 1); $size = [%p, %q],
    %i = 'tensor<?x?xf32, #stepwell.shape<["p", "q"]>>', %x = 'tensor<?xf32, #stepwell.shape<["p*q"]>>'

rule unit-permute-to-view
    A permute that moves nothing but axes of size 1. XNNPACK permutes any number of symbolic sizes,
    and views one.
Before:
    %y = aten.permute.default(%x, $dims)
After:
    %y = viewed(%x, %y)
where keeps_row_major_order(%x, $dims)
where is_open_once(%x) for target else "several sizes are symbolic"
unless has_no_view(%x, %y)
for $dims = [1, 0, 2], %x = "tensor<1x6x4xf32>"
not for %x = 'tensor<1x?x0xf32, #stepwell.shape<[1, "n", 0]>>'

rule squeeze-permute
    Axes of size one are taken out of a permute when the view behind it drops them anyway. A slice of
    a fused projection leaves `[1, 197, 1, 3, 64]` → permute → `[1, 1, 3, 197, 64]` → view
    `[1, 3, 197, 64]`: without the axes that vanish the last view is gone and the first one merges
    with the view before it.
Before:
    %p = aten.permute.default(%x, $dims)
    %y = aten.view.default(%p, …)
After:
    %v = with_axes(%x, $kept)
    %y = permuted(%v, among($dims, $kept))
with $kept = axes_that_stay(%x, $dims, %y)
where reads_once(%p) for cost else "the permute is read with its unit axes too"
for $dims = [1, 2, 0], $size = [3, 2], %x = "tensor<2x1x3xf32>"

rule unit-permute-of-view
    Behind a view it is one view with that, whatever is symbolic.
Before:
    %v = aten.view.default(%x, …)
    %y = aten.permute.default(%v, $dims)
After:
    %y = viewed(%x, %y)
where keeps_row_major_order(%v, $dims)
unless has_no_view(%x, %y)
for $size = [1, 6, 4], $dims = [1, 0, 2], %x = "tensor<2x3x4xf32>"
not for %p = aten.sym_size.int(%i, 0); %q = aten.sym_size.int(%i, 1); $size = [%p, 1, %q],
    %i = 'tensor<?x?xf32, #stepwell.shape<["p", "q"]>>', %x = 'tensor<?xf32, #stepwell.shape<["p*q"]>>'
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.ir.axes.alignment import dropped_units
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites import building
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    permute,
    same_type,
    view,
    view_op,
)
from stepwell.translate.rules import read_rules


def has_no_view(value: SSAValue, like: SSAValue) -> Refusal | None:
    """Refuse if a view of this value cannot state the sizes of the other value."""
    return cannot_be_viewed_as(value, dims(like.type))


def viewed(rw: Rewriter, value: SSAValue, like: SSAValue) -> SSAValue:
    """Return a value viewed in the shape of another; unchanged if it provably has that shape."""
    if same_type(value, like):
        return value
    op = view_op(rw, value, dims(like.type))
    op.results[0].name_hint = like.name_hint
    return rw.insert(op).results[0]


def keeps_row_major_order(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a permutation moves only axes of size 1, and is not the identity."""
    shape = dims(value.type)
    normal = [axis(d, len(shape)) for d in order]
    moving = [d for d in normal if shape[d] != 1]
    return moving == sorted(moving) and normal != sorted(normal)


def is_open_once(value: SSAValue) -> bool:
    """Whether at most one size is symbolic."""
    return building.is_open_once(dims(value.type))


def axes_that_stay(value: SSAValue, order: Sequence[int], view: SSAValue) -> list[int] | None:
    """Return the axes of a value that a view of its permutation keeps; None if the view does more
    than remove axes of size one.
    """
    shape = dims(value.type)
    normal = [axis(d, len(shape)) for d in order]
    dropped = dropped_units(tuple(shape[d] for d in normal), dims(view.type))
    return [at for at in range(len(shape)) if normal.index(at) not in dropped] if dropped else None


def with_axes(rw: Rewriter, value: SSAValue, kept: Sequence[int]) -> SSAValue:
    """Build a view with the kept axes only; the removed axes have size one."""
    return view(rw, value, [dims(value.type)[at] for at in kept])


def among(order: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the permutation restricted to the kept axes."""
    rank = len(order)
    return [kept.index(axis(d, rank)) for d in order if axis(d, rank) in kept]


def permuted(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Build a permute, unless it moves nothing."""
    return permute(rw, value, order)


RULES = read_rules(__doc__, globals())
