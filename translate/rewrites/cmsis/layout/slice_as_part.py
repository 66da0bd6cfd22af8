"""Slices of one contiguous run of memory become views of it: nothing is copied, and nothing runs.

The gates of a recurrent layer's step are such slices, and so are the steps of its projected inputs.

rule slice-as-part
    Some steps of the outermost axis.
Before:
    %r = quant.scast(%x) : (tensor<$*S x $Q>) -> tensor<$*S x $I>
    %y = aten.slice.Tensor(%r, $dim, …) : (…) -> tensor<$*T x $I>
After:
    %p = cmsis.part(%x, axis=$axis, start=$start) : … -> tensor<$*T x $Q>
    %y = quant.scast(%p)
unless is_copied(%x, %y) for target
with $axis = outermost(%x, $dim)
with $start = start_of(%y)
not of empty tensors
for %x = cmsis.minimum(%a, %a) : (…) -> tensor<$*S x $Q>
for %b = quant.scast(%y) : (…) -> tensor<$*T x $Q>
for %z = cmsis.minimum(%b, %b) : (…) -> tensor<$*T x $Q>
for %a = "tensor<1x4x!quant.uniform<i8:f32, 0.5>>", $S = [1, 4], $T = [1, 2]
for $Q = "!quant.uniform<i8:f32, 0.5>", $I = i8, $dim = 1, $start = 2, $end = 4
not for %x = "tensor<1x4x!quant.uniform<i8:f32, 0.5>>"

rule select-as-part
    One step of the outermost axis, of which the axis is taken away.
Before:
    %r = quant.scast(%x) : (tensor<$*S x $Q>) -> tensor<$*S x $I>
    %y = aten.select.int(%r, $dim, $index) : (…) -> tensor<$*T x $I>
After:
    %p = cmsis.part(%x, axis=$axis, start=$start) : … -> tensor<*one_of($S, $axis) x $Q>
    %v = reshaped(%p, $T)
    %y = quant.scast(%v)
unless is_copied(%x, %y) for target
with $axis = outermost(%x, $dim)
with $start = at_index($S, $axis, $index)
not of empty tensors
for %x = cmsis.minimum(%a, %a) : (…) -> tensor<$*S x $Q>
for %b = quant.scast(%y) : (…) -> tensor<$*T x $Q>
for %z = cmsis.minimum(%b, %b) : (…) -> tensor<$*T x $Q>
for %a = "tensor<1x3x4x!quant.uniform<i8:f32, 0.5>>", $S = [1, 3, 4], $T = [1, 4]
for $Q = "!quant.uniform<i8:f32, 0.5>", $I = i8, $dim = 1, $index = -1
not for %x = "tensor<1x3x4x!quant.uniform<i8:f32, 0.5>>"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim, dims, is_static
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.cmsis.layout import merge_movement, reshape
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import static_bounds
from stepwell.translate.rules import read_rules

VIEWS = (aten.ViewDefault, StorageCast)
"""Ops whose results only name bytes."""

MOST_AXES = 3
"""Tensors of more axes may be stored channels last."""


def is_copied(value: SSAValue, part: SSAValue) -> Refusal | None:
    """Refuse a slice whose offset is dynamic, or whose memory was not written row by row."""
    op = cast("SchemaOp", part.owner)
    if not is_static(value.type) or len(op.operands) > 1:
        return Refusal("a size or an offset is known only at run time")
    if (rank := len(dims(value.type))) > MOST_AXES:
        return Refusal(f"a tensor of {rank} axes may be stored channels last")
    if weight_key(source := _source(value)) is not None or isinstance(source, BlockArgument):
        return Refusal("the memory is an input's or a constant's")
    if _is_given_back(part):
        return Refusal("the value is a result, which needs memory of its own")
    return None


def outermost(value: SSAValue, dim: int) -> int | Refusal:
    """Return the axis, counted from the front, if every axis before it has size one."""
    shape = dims(value.type)
    at = axis(dim, len(shape))
    return at if all(size == 1 for size in shape[:at]) else Refusal("the slice is not contiguous")


def start_of(part: SSAValue) -> int | Refusal:
    """Return the begin of a slice whose step is one."""
    op = cast("SchemaOp", part.owner)
    bounds = static_bounds(op)
    return Refusal(f"the slice has step {op.arg('step')}") if bounds is None else bounds[1]


def at_index(shape: Sequence[int], at: int, index: int) -> int:
    """Return an index along an axis, counted from the front."""
    return index % shape[at]


def one_of(shape: Sequence[Dim], at: int) -> list[Dim]:
    """Return a shape with size 1 on one axis: that of a slice at one index."""
    return [*shape[:at], 1, *shape[at + 1 :]]


def _is_given_back(value: SSAValue) -> bool:
    return any(
        isinstance(use.operation, ReturnOp)
        or (isinstance(use.operation, VIEWS) and _is_given_back(use.operation.results[0]))
        for use in value.uses
    )


def _source(value: SSAValue) -> SSAValue:
    """Return the value whose bytes a view refers to."""
    while isinstance(value.owner, VIEWS):
        value = value.owner.operands[0]
    return value


RULES = read_rules(__doc__, vars(merge_movement) | vars(reshape) | globals())
