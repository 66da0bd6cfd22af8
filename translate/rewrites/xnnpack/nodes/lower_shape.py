"""Legalization of ops that move elements: view, permute, slice, cat, pad and expand.

The operands are floats of static sizes, except where a node takes axes whole or infers one size
from the others.

rule lower-view
    One size of run time is worked out from the others.
Before:
    %y = aten.view.default(%x, …)
After:
    %y = reshape_node(%x, sizes_of(%y))
where not has_open_sizes(%y) else "several sizes are symbolic; XNNPACK infers one"
unless stays_outside(%y) for target
for $size = [3, 2]
not for %x = 'tensor<?x1x?xf32, #stepwell.shape<["n", 1, "m"]>>'; %n = aten.sym_size.int(%x, 0); $size = [%n, -1]

rule lower-permute
    Axes are counted from the front.
Before:
    %y = aten.permute.default(%x, $order)
After:
    %y = transpose(%x, from_front_all(%x, $order))
unless stays_outside(%y) for target
for $order = [1, 0]

rule lower-slice
    One axis, without a step.
Before:
    %y = aten.slice.Tensor(%x, …) : (…) -> tensor<$*R x $E>
After:
    %y = xnnpack.static_slice(%x, offsets=offsets_of(%y), sizes=slice_sizes($R))
unless stays_outside(%y) for target
where has_known_bounds(%y) else "XNNPACK slices with step 1 and constant bounds, and not to nothing"
for $dim = 1, $start = 1, $end = 3, $R = [2, 2]

rule lower-cat
    Nodes take five tensors at most: groups, then groups of groups.
Before:
    %y = aten.cat.default($parts, $dim)
After:
    %y = concatenated($parts, $dim, %y)
unless stays_outside(%y) for target
unless are_too_many($parts, $dim) for target
for $dim = 1
not for $parts = ['tensor<2x?xf32, #stepwell.shape<[2, "n"]>>', 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>', 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>', 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>', 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>', 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>']

rule lower-pad
    A number around the elements.
Before:
    %y = aten.constant_pad_nd.default(%x, $?amounts, $?number)
After:
    %y = xnnpack.static_constant_pad(%x, pre_paddings=amounts_before(%x, $amounts),
        post_paddings=amounts_after(%x, $amounts), padding_value=$value)
unless stays_outside(%y) for target
with $value = single($number)
where are_no_crops($amounts) for target else "negative padding crops; write it as a slice"
for $amounts = [1, 2], $number = 0.5
not for $amounts = [-1, 2]

rule lower-expand
    XNNPACK repeats nothing, but a product with ones broadcasts.
Before:
    %y = aten.expand.default(%x, …)
After:
    %y = repeated(%x, %y)
unless stays_outside(%y) for target
unless takes_too_many_ones(%y) for target
for %x = "tensor<1x3xf32>", $size = [2, 3]
not for $size = [20000000, 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import f16, f32, torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import TO_THE_END, axis
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import static_bounds
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    FLOATS,
    MOVED,
    may_cut_all,
    moves_among_integers,
    not_floats,
    not_for_xnnpack,
    not_static,
)
from stepwell.translate.rules import read_rules

FOLLOWING = (aten.PermuteDefault, aten.SliceTensor, aten.CatDefault, aten.ConstantPadNdDefault)
"""Ops whose nodes infer the sizes of their results from the operands' sizes at run time."""


MOST_ONES = 1 << 24
"""The most ones in a constant that repeats a tensor: the constant is written into the artifact."""


def stays_outside(value: SSAValue) -> Refusal | None:
    """Refuse unsupported types, constants only, and values that are read outside delegates."""
    op = cast(SchemaOp, value.owner)
    is_view = isinstance(op, aten.ViewDefault)
    kinds = FLOATS if isinstance(op, aten.ExpandDefault) else MOVED  # An expand is a product.
    refusal = not_floats((op.operands[0], value), kinds) if is_view else not_for_xnnpack(op, kinds)
    if refusal := refusal or unknown_sizes(op):
        return refusal
    if all(isinstance(operand.owner, WeightOp) for operand in op.operands):
        return Refusal("all operands are constants; XNNPACK needs one that is computed")
    if moves_among_integers(op):
        return Refusal("the op moves data that integers index and that is read outside delegates")
    return None


def from_front_all(value: SSAValue, order: Sequence[int]) -> list[int]:
    """Return the axes, counted from the front."""
    return [axis(number, len(dims(value.type))) for number in order]


def has_known_bounds(value: SSAValue) -> bool:
    """Whether a slice has step 1 and static bounds within every possible size of the axis."""
    return slice_bounds(cast(SchemaOp, value.owner)) is not None


def slice_bounds(op: SchemaOp) -> tuple[int, int] | None:
    """Return the axis and the begin of a slice that a node can compute.

    The result's size along a dynamic axis is static only if the slice is within the smallest size.
    A slice to the end of a dynamic axis must keep a row at the smallest size.
    """
    bounds = static_bounds(op)
    if bounds is not None:
        return bounds[:2] if bounds[1] < bounds[2] else None  # A node's size 0 says: to the end.
    start, stop = 0 if op.arg("start") is None else op.arg("start"), op.arg("end")
    at = axis(op.arg("dim"), len(dims(op.results[0].type)))
    if not (isinstance(start, int) and isinstance(stop, int) and op.arg("step") == 1):
        return None
    size, whole = dims(op.results[0].type)[at], Size.of(dims(op.operands[0].type)[at])
    if stop >= TO_THE_END and start > 0:
        is_whole = whole - start == size and may_cut_all(op, size) is None
    else:
        is_whole = 0 <= start < stop and size == stop - start
    return (at, start) if is_whole else None


def offsets_of(value: SSAValue) -> list[int]:
    """Return the begin of a slice along each axis."""
    bounds = slice_bounds(cast(SchemaOp, value.owner))
    assert bounds is not None
    return [bounds[1] if at == bounds[0] else 0 for at in range(len(dims(value.type)))]


def are_too_many(parts: Sequence[SSAValue], number: int) -> Refusal | None:
    """Refuse more tensors than one node takes, unless they can be concatenated in static groups."""
    if is_symbolic_along(parts, number) and len(parts) not in xnnpack.CONCATENATES:
        return Refusal("more than five tensors are concatenated along a symbolic axis")
    return None


def is_symbolic_along(parts: Sequence[SSAValue], number: int) -> bool:
    """Whether one of some tensors has a dynamic size along an axis."""
    return any(isinstance(dims(part.type)[number], Size) for part in parts)


def are_no_crops(amounts: Sequence[int]) -> bool:
    """Whether all amounts of padding are non-negative."""
    return min(amounts, default=0) >= 0


def amounts_before(value: SSAValue, amounts: Sequence[int]) -> list[int]:
    """Return the padding before each axis, from the first axis on."""
    return _from_first(value, amounts[::2])


def amounts_after(value: SSAValue, amounts: Sequence[int]) -> list[int]:
    """Return the padding after each axis, from the first axis on."""
    return _from_first(value, amounts[1::2])


def _from_first(value: SSAValue, amounts: Sequence[int]) -> list[int]:
    return [0] * (len(dims(value.type)) - len(amounts)) + list(reversed(amounts))


def single(number: float | SSAValue) -> float | Refusal:
    """Return a number as an attribute."""
    if isinstance(number, SSAValue):
        return Refusal("the padding value is known only at run time")
    return float(number)


def takes_too_many_ones(value: SSAValue) -> Refusal | None:
    """Refuse a repetition that would need too many ones in the artifact."""
    count = prod(d for d in dims(value.type) if isinstance(d, int))
    if count <= MOST_ONES:
        return None
    return Refusal(f"the op repeats by a product with {count} ones, above {MOST_ONES}")


def unknown_sizes(op: SchemaOp) -> Refusal | None:
    """Refuse dynamic shapes, unless a node takes whole axes or infers one size."""
    if isinstance(op, FOLLOWING):
        return next(
            (
                Refusal("a dimension is not known, not even as an expression")
                for v in op.results
                if UNKNOWN in dims(v.type)
            ),
            None,
        )
    if isinstance(op, aten.ViewDefault):
        shape = dims(op.results[0].type)
        symbolic = [size for size in shape if isinstance(size, Size)]
        if len(symbolic) > 1 and not moves_units(op.operands[0], shape):
            return Refusal(
                f"the sizes {', '.join(map(str, symbolic))} are symbolic; "
                "XNNPACK infers one, not more"
            )
        return None
    if isinstance(op, aten.ExpandDefault):
        operand_dims, result_dims = dims(op.operands[0].type), dims(op.results[0].type)
        added = (
            len(result_dims) > len(operand_dims)
            and sum(isinstance(size, Size) for size in operand_dims) > 1
        )
        return Refusal("the op adds an axis next to two of symbolic sizes") if added else None
    return next((r for v in (*op.operands, *op.results) if (r := not_static(v))), None)


def _put(rw: Rewriter, node: XnnpackOp) -> SSAValue:
    return rw.insert(node).results[0]


def reshape(rw: Rewriter, value: SSAValue, shape: tuple[Dim, ...]) -> SSAValue:
    """Build `xnnpack.static_reshape`, or add and remove units among several symbolic sizes."""
    if dims(value.type) == shape or sum(isinstance(size, Size) for size in shape) <= 1:
        return reshape_node(rw, value, shape)
    assert moves_units(value, shape), "a reshape node infers one size"
    return with_units(rw, value, shape)


def reshape_node(rw: Rewriter, value: SSAValue, shape: tuple[Dim, ...]) -> SSAValue:
    """Build `xnnpack.static_reshape`, with one symbolic size at most, unless the value has the shape
    already.
    """
    if dims(value.type) == shape:
        return value
    result = tensor(shape, element(value.type))
    sizes = [0 if isinstance(d, Size) else d for d in shape]
    return _put(rw, xnnpack.StaticReshape.make(value, result=result, new_shape=sizes))


def has_open_sizes(value: SSAValue) -> bool:
    """Whether several sizes are dynamic: a reshape node infers one."""
    return sum(isinstance(size, Size) for size in dims(value.type)) > 1


def moves_units(value: SSAValue, shape: Sequence[Dim]) -> bool:
    """Whether only axes of size one are added to or removed from floats of known sizes."""
    here = dims(value.type)
    return (
        element(value.type) in (f32, f16)
        and UNKNOWN not in (*here, *shape)
        and _larger(here) == _larger(shape)
        and 0 < max(len(here), len(shape)) < MAX_RANK
    )


def _larger(shape: Sequence[Dim]) -> list[Dim]:
    return [size for size in shape if size != 1]


def with_units(rw: Rewriter, value: SSAValue, shape: tuple[Dim, ...]) -> SSAValue:
    """Add and remove axes of size one next to dynamic sizes, without a reshape.

    A product with a higher-rank one adds leading axes, a transpose moves them into place, and a
    mean over two axes removes both.
    """
    units = dims(value.type).count(1) - shape.count(1)
    added = -units if units < 0 else units % 2
    if added:
        rank = added + len(dims(value.type))
        one = torch.ones([1] * rank, dtype=torch_dtype(element(value.type)))
        result = tensor((*[1] * added, *dims(value.type)), element(value.type))
        value = _put(rw, xnnpack.Multiply.make(value, rw.constant(one, "one"), result=result))
    free = [at for at, size in enumerate(dims(value.type)) if size == 1]
    others = [at for at, size in enumerate(dims(value.type)) if size != 1]
    order = [free.pop(0) if size == 1 else others.pop(0) for size in shape]
    while len(free) > 0:
        order = [*order[:-1], *free, order[-1]]
        value, order, free = transpose(rw, value, order), list(range(len(order))), free[2:]
        value = _put(rw, xnnpack.GlobalAveragePooling2d.make(value))
        order = order[: len(dims(value.type))]
    return transpose(rw, value, order)


def transpose(rw: Rewriter, value: SSAValue, order: list[int]) -> SSAValue:
    """Build `xnnpack.static_transpose`, or return the value itself if the order does not change."""
    if order == list(range(len(order))):
        return value
    return _put(rw, xnnpack.StaticTranspose.make(value, perm=order))


def to_nhwc(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Transpose `[N, C, H, W]` to `[N, H, W, C]`, or `[N, C, W]` to `[N, 1, W, C]`."""
    shape = dims(value.type)
    if len(shape) == 3:
        value = reshape(rw, value, (shape[0], shape[1], 1, shape[2]))
    return transpose(rw, value, [0, 2, 3, 1])


def to_nchw(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """Transpose `[N, H, W, C]` to `[N, C, H, W]`, without the height if the type has none."""
    return reshape(rw, transpose(rw, value, [0, 3, 1, 2]), dims(type_))


def clamps_of(node: XnnpackOp) -> dict[str, float]:
    """Return the fields of a node's output range, for another node that computes its result."""
    names = [name for name in ("output_min", "output_max") if name in node.properties]
    return {name: node.number(name, 0.0) for name in names}


def slice_sizes(shape: tuple[Dim, ...]) -> list[int]:
    """Return a slice's sizes as the node takes them: 0 means to the end of a symbolic axis."""
    return [0 if isinstance(d, Size) else d for d in shape]


def concatenated(rw: Rewriter, parts: Sequence[SSAValue], number: int, like: SSAValue) -> SSAValue:
    """Concatenate tensors along an axis; by a single node if a size is dynamic."""
    at = axis(number, len(dims(like.type)))
    if not is_symbolic_along(parts, number):
        return concatenate(rw, parts, at)
    return _put(rw, xnnpack.CONCATENATES[len(parts)].make(*parts, result=like.type, axis=at))


MOST_JOINED = max(xnnpack.CONCATENATES)
"""The operands of a node that concatenates."""


def concatenate(rw: Rewriter, parts: Sequence[SSAValue], at: int) -> SSAValue:
    """Concatenate groups of as many tensors as a node takes, then groups of groups."""
    values = list(parts)
    while len(values) > 1:
        values = [
            _put(rw, xnnpack.CONCATENATES[len(part)].make(*part, axis=at))
            if len(part) > 1
            else part[0]
            for part in (values[i : i + MOST_JOINED] for i in range(0, len(values), MOST_JOINED))
        ]
    return values[0]


def repeated(rw: Rewriter, value: SSAValue, like: SSAValue) -> SSAValue:
    """Broadcast a tensor to the shape of another, by a product with ones."""
    target = dims(like.type)
    missing = len(target) - len(dims(value.type))
    value = reshape_node(rw, value, (*([1] * missing), *dims(value.type)))
    if dims(value.type) == target:
        return value
    dtype = torch_dtype(element(like.type))
    shape = target
    if any(isinstance(size, Size) for size in target):
        shape = [1 if a == b else b for a, b in zip(dims(value.type), target, strict=True)]
    ones = torch.ones([d for d in shape if isinstance(d, int)], dtype=dtype)
    return _put(rw, xnnpack.Multiply.make(value, rw.constant(ones, "ones"), result=like.type))


RULES = read_rules(__doc__, globals())
