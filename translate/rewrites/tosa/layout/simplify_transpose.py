"""Canonicalization: transpose as few axes as possible, if the required reshapes exist already.

Axes of size 1, and axes that stay adjacent, need no transpose.  Attention's `[1, 3, 197, 64]` to
`[1, 197, 3, 64]` between reshapes is `[3, 197, 64]` to `[197, 3, 64]`.

rule simplify-transpose
    Three operators, of which the outer two merge with their neighbors.
Before:
    %y = tosa.transpose(%x, perms=$order)
After:
    %a = in_shape(%x, shape_in($simplest))
    %b = in_place(%a, order_in($simplest))
    %y = in_shape(%b, sizes_of(%y))
where is_spelled(%x) else "the shape is not known"
with $simplest = of_fewer_axes(%x, $order)
where takes_reshape(%x) for cost else "what it reads is not a reshape"
where only_reshapes_read(%y) for cost else "one of its readers is not a reshape"
for %x = tosa.reshape(%z, [1, 3, 4, 8])
for %r = tosa.reshape(%y, [4, 24])
for %z = "tensor<3x4x8xf32>", $order = [0, 2, 1, 3]
not for %x = "tensor<1x3x4x8xf32>"
not for %x = tosa.reshape(%z, %n) : (…) -> $X; $X = 'tensor<1x?x4x8xf32, #stepwell.shape<[1, "?", 4, 8]>>', %n = "!tosa.shape<4>"
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.layout import merge_layout
from stepwell.translate.rewrites.tosa.operators import sizes
from stepwell.translate.rewrites.tosa.operators.building import Builder, i32s, shape_of
from stepwell.translate.rules import read_rules

Simplest = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape and the permutation of a transpose."""


def of_fewer_axes(value: SSAValue, order: Sequence[int]) -> Simplest | None:
    """Return the same transpose over fewer axes, if there is one."""
    shape = shape_of(value)
    found = simplest(shape, order)
    return None if len(found[0]) == len(shape) else found


def shape_in(found: Simplest) -> tuple[int, ...]:
    """Return the shape that the simplified transpose permutes."""
    return found[0]


def order_in(found: Simplest) -> tuple[int, ...]:
    """Return the permutation of the simplified transpose."""
    return found[1]


def in_place(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Permute the axes of a value, unless their order is as asked."""
    if list(order) == list(range(len(order))):
        return value
    shape = [shape_of(value)[axis] for axis in order]
    return Builder(rw).op(t.TransposeOp, [value], shape, element(value.type), perms=i32s(order))


def only_reshapes_read(value: SSAValue) -> bool:
    """Whether all readers of a value are reshapes."""
    return all(isinstance(use.operation, t.ReshapeOp) for use in value.uses)


def takes_reshape(value: SSAValue) -> bool:
    """Whether a reshape of this value would merge into another reshape, or move over a slice."""
    owner = value.owner
    if isinstance(owner, t.SliceOp):
        owner = owner.input1.owner
        return isinstance(owner, t.ReshapeOp | t.TransposeOp)
    return isinstance(owner, t.ReshapeOp)


def simplest(shape: Sequence[int], order: Sequence[int]) -> Simplest:
    """Return the shape and permutation of the same transpose over the fewest axes."""
    runs: list[list[int]] = []
    for axis in order:
        if shape[axis] == 1:
            continue
        if runs and _follows(runs[-1][-1], axis, shape):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    in_source = sorted(runs)
    sizes = tuple(prod(shape[axis] for axis in run) for run in in_source)
    return sizes, tuple(in_source.index(run) for run in runs)


def _follows(first: int, second: int, shape: Sequence[int]) -> bool:
    """Whether only axes of size 1 are between two axes, which are in rising order."""
    return first < second and all(shape[axis] == 1 for axis in range(first + 1, second))


(SimplifyTranspose,) = RULES = read_rules(__doc__, vars(sizes) | vars(merge_layout) | globals())
