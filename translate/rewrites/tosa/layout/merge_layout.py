"""Canonicalization: merge consecutive reshapes and transposes, and remove those without effect.

A transpose that moves only axes of size 1 is a reshape.

rule merge-transposes
    A transpose of a transpose is one, a reshape, or none.
Before:
    %a = tosa.transpose(%x, perms=$first)
    %y = tosa.transpose(%a, perms=$second)
After:
    %y = in_order(%x, composed($first, $second))
where is_spelled(%a) for target else "the shape is not known"
for $first = [0, 2, 1], $second = [0, 2, 1], %x = "tensor<2x3x4xf32>"
not for %x = "tensor<?x3x4xf32>"

rule transpose-constant
    A constant is transposed ahead of time.
Before:
    %w = weight
    %y = tosa.transpose(%w, perms=$order)
After:
    %y = in_order(%w, $order)
for $order = [1, 0]

rule transpose-to-reshape
    One that moves nothing but axes of size 1.
Before:
    %y = tosa.transpose(%x, perms=$order)
After:
    %y = in_order(%x, $order)
where is_spelled(%x) else "the shape is not known"
where moves_nothing(%x, $order) for termination
for $order = [1, 0, 2], %x = "tensor<1x3x4xf32>"

rule merge-reshapes
    A reshape of a reshape is one.
Before:
    %a = tosa.reshape(%x, …)
    %y = tosa.reshape(%a, …)
After:
    %y = in_shape(%x, sizes_of(%y))
where is_spelled(%y) else "the shape is not known"
for $shape = [6]
not for $shape = "!tosa.shape<1>"

rule remove-reshape
    One to the same shape is none.
Before:
    %y = tosa.reshape(%x, …) : ($T, …) -> $T
After:
    %y = itself(%x)
where is_spelled(%y) else "the shape is not known"
for $T = "tensor<2x3xf32>", $shape = [2, 3]
not for %x = tosa.reshape(%z, [2, 3]) : (…) -> $T; %z = "tensor<6xf32>", $T = "tensor<?x?xf32>", $shape = [3, 2]

rule reshape-constant
    A constant is reshaped ahead of time.
Before:
    %w = weight
    %y = tosa.reshape(%w, …)
After:
    %y = in_shape(%w, sizes_of(%y))
where is_spelled(%y) else "the shape is not known"
for $shape = [6]
not for $shape = "!tosa.shape<1>"

rule merge-slices
    A slice of a slice is one. `stepwell discover` found it.
Before:
    %a = tosa.slice(%x, $first, $some)
    %y = tosa.slice(%a, $second, $size)
After:
    %y = tosa.slice(%x, $start, $size)
with $start = sums($first, $second)
for $first = [1, 0], $some = [3, 4], $second = [1, 2], $size = [2, 1], %x = "tensor<5x4xf32>"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import SSAValue

from stepwell.ir.axes.maps import lies_the_same
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.rewrites.tosa.operators import sizes
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import Size
from stepwell.translate.rules import read_rules


def transposed(value: SSAValue, order: Sequence[int], b: Builder) -> SSAValue:
    """Build a transpose, or a reshape if that is equivalent."""
    shape = shape_of(value)
    if lies_the_same(shape, order):
        return b.reshape(value, [shape[axis] for axis in order])
    return b.transpose(value, order)


def in_order(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Permute the axes of a value by the cheapest operator."""
    return transposed(value, order, Builder(rw))


def in_shape(rw: Rewriter, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
    """Reshape a value, unless it has the shape already; reshape a constant at compile time."""
    return Builder(rw).reshape(value, shape)


def moves_nothing(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a permutation keeps the order of elements in memory."""
    return lies_the_same(shape_of(value), order)


def sums(one: object, other: object) -> list[int] | None:
    """Return the sums of two lists, number by number; None if one is a value of the program."""
    if not isinstance(one, list) or not isinstance(other, list):
        return None
    lists = cast("list[int]", one), cast("list[int]", other)
    return [a + b for a, b in zip(*lists, strict=True)]


RULES = read_rules(__doc__, vars(sizes) | globals())
