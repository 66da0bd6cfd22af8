"""Sinking: move a reshape after the operators that follow it, until it meets another and merges.

Batched products need rank 3, but the operators between two of them may have rank 4; after the move,
the two reshapes meet. The other operands of an operator must be reshaped too, or be constants that
fit both shapes.

rule sink-added-axes
    Axes of size 1 that reshapes added, behind what keeps those axes.
Before:
    %y = $op of KEEPING(%a, …)
After:
    %n = without_axes(%y, $added)
    %y = in_shape(%n, sizes_of(%y))
with $added = axes_added(%y)
unless cannot_follow(%y)
for %a = tosa.reshape(%x, [1, 3, 4])
for %x = "tensor<3x4xf32>", $op = "tosa.exp"
not for %a = tosa.reshape(%x, %n) : (…) -> $A; $A = 'tensor<1x?x4xf32, #stepwell.shape<[1, "?", 4]>>', %x = 'tensor<?x4xf32, #stepwell.shape<["?", 4]>>', %n = "!tosa.shape<3>"

rule sink-reshape
    A reshape of any kind that nothing else reads, behind what computes each element for itself.
Before:
    %y = $op of ELEMENTWISE(%a, …)
After:
    %n = in_source_shape(%y, $source)
    %y = in_shape(%n, sizes_of(%y))
with $source = shape_before(%y)
unless cannot_follow(%y)
for %a = tosa.reshape(%x, [2, 6])
for %x = "tensor<3x4xf32>", $op = "tosa.exp"
not for %a = tosa.reshape(%x, %n) : (…) -> $A; $A = 'tensor<2x?xf32, #stepwell.shape<[2, "?"]>>', %n = "!tosa.shape<2>"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.axes import DATA, ELEMENTWISE, is_block_scaled
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.axes.alignment import dropped_units
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i32
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.layout import merge_layout
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_spelled
from stepwell.translate.rules import read_rules

REDUCTIONS = (t.ReduceSumOp, t.ReduceMaxOp, t.ReduceMinOp, t.ReduceProductOp)
KEEPING = (*ELEMENTWISE, *REDUCTIONS)

Shape = tuple[Dim, ...]


def cannot_follow(value: SSAValue) -> Refusal | None:
    """Refuse if a shape is unknown, or if elements are block-scaled."""
    data = data_of(value)
    sources = [v.owner.input1 for v in data if isinstance(v.owner, t.ReshapeOp)]
    if not is_spelled(*data, value, *sources):
        return Refusal("a shape is not known")
    if is_block_scaled(cast("TosaOp", value.owner)):
        return Refusal("the elements are block-scaled along the last axis")
    return None


def axes_added(value: SSAValue) -> tuple[int, ...] | Refusal | None:
    """Return the unit axes that all operands' reshapes added, if the reshapes do nothing else."""
    op, data, first = cast("TosaOp", value.owner), data_of(value), _reshaped(value)
    if first is None:
        return None
    added = tuple(sorted(dropped_units(shape_of(first), _source_shape(first)) or ()))
    if not added:
        return None
    for operand in data:
        shape = shape_of(operand)
        if any(shape[axis] != 1 for axis in added):
            return Refusal("an operand has elements along an axis that was added")
        if isinstance(operand.owner, t.ReshapeOp):
            if _source_shape(operand) != without(shape, added):
                return Refusal("the operands were reshaped differently")
        elif weight_key(operand) is None:
            return Refusal("an operand was not reshaped")
    if isinstance(op, REDUCTIONS) and op.axis.value.data in added:
        return Refusal("the reduction runs along an axis that was added")
    return added


def shape_before(value: SSAValue) -> Shape | Refusal | None:
    """Return the one shape from which all operands were reshaped; constants fit both shapes."""
    op, data, first = cast("TosaOp", value.owner), data_of(value), _reshaped(value)
    if first is None:
        return None
    source, result = _source_shape(first), shape_of(value)
    for operand in data:
        shape = shape_of(operand)
        if isinstance(operand.owner, t.ReshapeOp):
            if _source_shape(operand) != source or shape != result:
                return Refusal("the operands were reshaped differently")
            if any(use.operation is not op for use in operand.uses):
                return Refusal("another op reads the reshape")
        elif weight_key(operand) is None:
            return Refusal("an operand was not reshaped")
        elif elements(shape) != 1 and not keeps_last(shape, result, source):
            return Refusal("a constant varies along an axis that the reshape changes")
    per_channel = isinstance(op, t.RescaleOp) and op.per_channel.value.data
    if per_channel and source[-1:] != result[-1:]:
        return Refusal("the op rescales each channel, which must be the last axis")
    return source


def _reshaped(value: SSAValue) -> SSAValue | None:
    """Return the first data operand of an operator that a reshape produces."""
    return next((v for v in data_of(value) if isinstance(v.owner, t.ReshapeOp)), None)


def data_of(value: SSAValue) -> list[SSAValue]:
    """Return the operands that share the result's axes; the others are parameters."""
    op = cast("TosaOp", value.owner)
    return list(op.operands[: DATA.get(type(op))])


def keeps_last(shape: Sequence[Dim], result: Sequence[Dim], source: Sequence[Dim]) -> bool:
    """Whether a constant varies along the last axis only, and the reshape keeps that axis."""
    return elements(shape[:-1]) == 1 and bool(source) and source[-1] == result[-1] == shape[-1]


def without(shape: Sequence[Dim], axes: Sequence[int]) -> Shape:
    """Return a shape without some axes."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def without_axes(rw: Rewriter, value: SSAValue, added: Sequence[int]) -> SSAValue:
    """Build an operator on operands from which the added axes were removed."""
    b = Builder(rw)
    operands = [_source(v) or b.reshape(v, without(shape_of(v), added)) for v in data_of(value)]
    fields: dict[str, Any] = {}
    if isinstance(value.owner, REDUCTIONS):
        axis = value.owner.axis.value.data
        fields["axis"] = IntegerAttr(axis - sum(a < axis for a in added), i32)
    return _again(b, value, operands, without(shape_of(value), added), fields)


def in_source_shape(rw: Rewriter, value: SSAValue, source: Shape) -> SSAValue:
    """Build an operator on operands in their shape before the reshape."""
    b = Builder(rw)
    operands = [
        _source(v)
        or b.reshape(v, (*[1] * (len(source) - 1), *(shape_of(v)[-1:] or (1,))) if source else ())
        for v in data_of(value)
    ]
    return _again(b, value, operands, source, {})


def _again(
    b: Builder, value: SSAValue, operands: list[SSAValue], shape: Shape, fields: dict[str, Any]
) -> SSAValue:
    """Build the same operator on other data, in another shape."""
    op = cast("TosaOp", value.owner)
    rest, properties = op.operands[len(operands) :], {**op.properties, **fields}
    new = b.op(type(op), [*operands, *rest], shape, element(value.type), **properties)
    new.name_hint = value.name_hint
    return new


def _source(value: SSAValue) -> SSAValue | None:
    """Return the operand of a reshape."""
    return value.owner.input1 if isinstance(value.owner, t.ReshapeOp) else None


def _source_shape(value: SSAValue) -> Shape:
    """Return the shape of the operand of the reshape that produces a value."""
    source = _source(value)
    assert source is not None
    return shape_of(source)


RULES = read_rules(__doc__, vars(merge_layout) | globals())
