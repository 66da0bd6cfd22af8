"""Hoisting: move a slice before the permute or view that it follows, towards the producer.

`qkv.view(B, N, 3, H, D).permute(2, 0, 3, 1, 4)[i]` is a slice of the fused projection's output
features. Before both layout ops `split_linear` can split the projection itself. On a view, the
sliced axis must be the leading factor of a source axis (axes tracked by their strides, not sizes).

rule hoist-slice-over-permute
    `slice(permute(x))` to `permute(slice(x))`.
Before:
    %p = aten.permute.default(%x, $order)
    %y = aten.slice.Tensor(%p, …)
After:
    %s = cut(%x, $part)
    %y = permuted(%s, in_order($order))
where only_slices_read(%p) for cost
with $bounds = bounds_of(%y)
where is_gain(%p, $bounds) for cost else "no less would be laid out, and the slices cut no layer's outputs"
with $part = part_before_permute($order, $bounds)
for $order = [1, 0], $dim = 0, $start = 0, $end = 1

rule hoist-slice-over-view
    `slice(view(x))` to `view(slice(x))`.
Before:
    %v = aten.view.default(%x, …)
    %y = aten.slice.Tensor(%v, …)
After:
    %s = cut(%x, $part)
    %y = in_shape_of(%s, %y)
where only_slices_read(%v) for cost
with $bounds = bounds_of(%y)
where is_gain(%v, $bounds) for cost else "no less would be laid out, and the slices cut no layer's outputs"
with $part = part_before_view(%x, %v, $bounds)
unless has_no_view(%x, %y)
for $size = [2, 3], $dim = 0, $start = 0, $end = 1, %x = "tensor<6xf32>"
not for %x = 'tensor<?x6xf32, #stepwell.shape<["n", 6]>>', $size = [-1, 2, 3], $dim = 1, $end = 0
not for %r = aten.slice.Tensor(%v, 0, 1, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import axis, emit, slice_op, view
from stepwell.translate.rewrites.views import merge_views
from stepwell.translate.rules import read_rules

MOST_READERS = 64
"""The most readers of a layout op's result, or of its source, that are examined."""

Part = tuple[int, int, int]
"""An axis, and the begin and end of a slice on it."""


def only_slices_read(value: SSAValue) -> bool:
    """Whether only slices read a value."""
    return all(isinstance(use.operation, aten.SliceTensor) for use in value.uses)


def bounds_of(part: SSAValue) -> Part | None:
    """Return (axis, start, stop) of a slice with step 1 and static bounds, else None."""
    return static_bounds(cast(SchemaOp, part.owner))


def is_gain(value: SSAValue, bounds: Part) -> bool:
    """Whether hoisted slices move less data, or split a layer's outputs."""
    return drops_some(cast(SchemaOp, value.owner), bounds[0]) or cuts_outputs(value, bounds[0])


def part_before_permute(order: Sequence[int], bounds: Part) -> Part:
    """Build the slice of a permutation's operand that equals the slice of its result before the
    permutation.
    """
    return axis(order[bounds[0]], len(order)), *bounds[1:]


def part_before_view(source: SSAValue, viewed: SSAValue, bounds: Part) -> Part | Refusal:
    """Build the slice of the view's operand."""
    at, start, stop = bounds
    factor = leading_factor(dims(source.type), dims(viewed.type), at)
    if factor is None:
        return Refusal("the sliced axis is not the leading part of an axis before the view")
    return factor[0], start * factor[1], stop * factor[1]


def cut(rw: Rewriter, value: SSAValue, part: Part) -> SSAValue:
    """Build a slice with step 1."""
    at, start, stop = part
    return emit(rw, slice_op(value, at, start, stop, stop - start))


def in_order(order: Sequence[int]) -> list[int]:
    """Return axes counted from the front."""
    return [axis(d, len(order)) for d in order]


def in_shape_of(rw: Rewriter, value: SSAValue, like: SSAValue) -> SSAValue:
    """Build a view in the shape of another value."""
    return view(rw, value, dims(like.type))


def drops_some(layout: SchemaOp, at: int) -> bool:
    """Whether a layout op moves less data if it comes after the slices of its result.

    This is false if the slices together are as large as the result, or if another op reads the
    whole source, because its layout op may become equal to this one. More than `MOST_READERS`
    readers are not examined, since each slice repeats the check.
    """
    (value,), source = layout.results, layout.operands[0]
    around, cuts = (
        [use.operation for use in islice(held.uses, MOST_READERS + 1)] for held in (source, value)
    )
    if max(len(around), len(cuts)) > MOST_READERS:
        return False
    readers = [op for op in around if op is not layout]
    slices = [op for op in cuts if isinstance(op, aten.SliceTensor)]
    kept = {bounds for op in slices if (bounds := static_bounds(op)) is not None}
    size = dims(value.type)[at]
    total = sum(stop - start for axis_, start, stop in kept if axis_ == at)
    is_less = isinstance(size, int) and total < size
    return is_less and all(isinstance(reader, aten.SliceTensor) for reader in readers)


def cuts_outputs(value: SSAValue, at: int) -> bool:
    """Whether an axis, followed up through layout ops, is the output axis of a linear layer."""
    while isinstance(owner := value.owner, aten.PermuteDefault | aten.ViewDefault):
        shape, source = dims(value.type), dims(owner.operands[0].type)
        if isinstance(owner, aten.PermuteDefault):
            at = axis(owner.arg("dims")[at], len(shape))
        else:
            factor = leading_factor(source, shape, at)
            if factor is None:
                return False
            at, _ = factor
        value = owner.operands[0]
    return isinstance(owner, aten.LinearDefault) and at == len(dims(value.type)) - 1


def static_bounds(op: SchemaOp) -> tuple[int, int, int] | None:
    """Return (axis, start, stop) of a slice of step 1 with static bounds on a static axis."""
    shape = dims(op.operands[0].type)
    start, stop = op.arg("start"), op.arg("end")
    at = axis(op.arg("dim"), len(shape))
    size = shape[at]
    if not isinstance(size, int) or op.arg("step") != 1:
        return None
    start = 0 if start is None else start
    stop = size if stop is None else stop
    if not isinstance(start, int) or not isinstance(stop, int):
        return None
    start = min(max(start + size if start < 0 else start, 0), size)
    stop = min(max(stop + size if stop < 0 else stop, start), size)
    return at, start, stop


def leading_factor(
    source: tuple[Dim, ...], viewed: tuple[Dim, ...], at: int
) -> tuple[int, int] | None:
    """Return (source axis, elements per step) if axis `at` of a view is the leading part of a
    source axis.

    Row-major strides decide: the source axis must start where the viewed axis starts, so its outer
    extent is equal, and the viewed axis's stride must be a multiple of the source axis's. Symbolic
    sizes may be outside and inside, if they are the same on both sides.
    """
    outer, inner = _extent(viewed[:at]), _extent(viewed[at + 1 :])
    length = viewed[at]
    assert isinstance(length, int), "static_bounds asked for it"
    for index, size in enumerate(source):
        stride = _extent(source[index + 1 :])
        if (
            isinstance(size, int)
            and size > 1
            and stride[1] == inner[1]
            and stride[0]
            and _extent(source[:index]) == outer
            and inner[0] % stride[0] == 0
            and size * stride[0] == length * inner[0]
        ):
            return index, inner[0] // stride[0]
    return None


def _extent(shape: tuple[Dim, ...]) -> tuple[int, list[Size]]:
    """Return the product of the static sizes, and the list of symbolic sizes."""
    symbols = sorted((d for d in shape if isinstance(d, Size)), key=str)
    return prod(d for d in shape if isinstance(d, int)), symbols


RULES = read_rules(__doc__, vars(merge_views) | globals())
