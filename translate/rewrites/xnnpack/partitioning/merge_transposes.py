"""Canonicalization: merge consecutive transposes, reshapes and slices into one, or remove them.

`AssignLayouts` decides where transposes are. These rules merge adjacent transposes.

rule merge-transposes
    Two transposes in a row are one, a reshape, or none.
Before:
    %a = xnnpack.static_transpose(%x, perm=$first)
    %y = xnnpack.static_transpose(%a, perm=$second)
After:
    %y = in_order(%x, composed($first, $second), %y)
for $first = [0, 3, 1, 2], $second = [0, 2, 3, 1], %x = "tensor<1x2x3x4xf32>"

rule transpose-to-reshape
    One that moves axes of size one only.
Before:
    %y = xnnpack.static_transpose(%x, perm=$order)
After:
    %y = in_order(%x, $order, %y)
where moves_units_only(%x, $order) for termination
for $order = [1, 0, 2], %x = "tensor<1x3x4xf32>"

rule merge-reshapes
    Two reshapes in a row are one, or none.
Before:
    %a = xnnpack.static_reshape(%x, …)
    %y = xnnpack.static_reshape(%a, …) : (…) -> $T
After:
    %y = reshaped(%x, $T)
for $T = "tensor<6xf32>", $new_shape = [6]

rule merge-slices
    A slice of a slice is one. `stepwell discover` found it.
Before:
    %a = xnnpack.static_slice(%x, offsets=$first, sizes=$some)
    %y = xnnpack.static_slice(%a, offsets=$second, sizes=$sizes) : (…) -> $T
After:
    %y = xnnpack.static_slice(%x, offsets=sums($first, $second), sizes=$sizes)
where are_stated($sizes) else "a size is that to the end of the first part"
for $first = [1, 0], $some = [3, 4], $second = [1, 2], $sizes = [2, 1], %x = "tensor<5x4xf32>", $T = "tensor<2x1xf32>"
not for $sizes = [0, 1]

rule remove-reshape
    A reshape to the shape that is there is none.
Before:
    %y = xnnpack.static_reshape(%x, …) : ($T) -> $T
After:
    %y = itself(%x)
for $T = "tensor<6xf32>", $new_shape = [6]

rule drop-averaged-axes
    The two axes that an average over planes left as one, taken away by a reshape, are not kept.
Before:
    %a = xnnpack.global_average_pooling_2d(%x, …, keep_dims=true) : (…) -> tensor<$*S x 1 x 1 x $C x $E>
    %y = xnnpack.static_reshape(%a, …) : (…) -> tensor<$*S x $C x $E>
After:
    %y = xnnpack.global_average_pooling_2d(%x, …, keep_dims=none)
where reads_once(%a) for cost
for %x = "tensor<2x3x4x5xf32>", $S = [2], $C = 5, $new_shape = [2, 5]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import xnnpack
from stepwell.ir.axes.maps import Order, lies_the_same
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import is_open_once
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import slice_sizes
from stepwell.translate.rules import read_rules


@recipe("transposed_to")
def transposed_to(constant: torch.Tensor, *, order: list[int]) -> torch.Tensor:
    """Return a constant with added leading axes of size one and permuted axes."""
    missing = len(order) - constant.dim()
    return constant.reshape(*([1] * missing), *constant.shape).permute(order).contiguous()


def in_order(rw: Rewriter, value: SSAValue, order: Sequence[int], like: SSAValue) -> SSAValue:
    """Permute the axes of a value by no node, a reshape, or one transpose."""
    if list(order) == list(range(len(order))):
        return value
    if moves_units_only(value, tuple(order)):
        return reshaped(rw, value, like.type)
    new = xnnpack.StaticTranspose.make(value, result=like.type, perm=list(order))
    return rw.insert(new).results[0]


def moves_units_only(value: SSAValue, order: Order) -> bool:
    """Whether a permutation keeps the order of the axes that are not of size one.

    Such a permutation is a reshape. A reshape can infer one symbolic size, not more.
    """
    shape = dims(value.type)
    return lies_the_same(shape, order) and is_open_once(shape)


def sums(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the sums of two lists, number by number."""
    return [a + b for a, b in zip(one, other, strict=True)]


def are_stated(sizes: Sequence[int]) -> bool:
    """Whether no size is 0, which stands for all elements up to the end."""
    return all(size > 0 for size in sizes)


def reshaped(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """Return a value reshaped to the shape of a type."""
    if value.type == type_:
        return value
    new = xnnpack.StaticReshape.make(value, result=type_, new_shape=slice_sizes(dims(type_)))
    return rw.insert(new).results[0]


RULES = read_rules(__doc__, globals())
