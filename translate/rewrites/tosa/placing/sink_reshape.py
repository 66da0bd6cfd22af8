"""Move a reshape behind the operators that follow it, until it meets another and merges.

Batched products want rank 3, a softmax was written for rank 4: behind the softmax the two reshapes
meet.  One that only adds axes of size 1 passes whatever keeps those axes; any other one passes what
computes each element for itself, if nothing else reads it.

Before:
    %s = tosa.const_shape {values = dense<[1, 3, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %a = tosa.reshape %x, %s : (tensor<3x4xf32>, !tosa.shape<3>) -> tensor<1x3x4xf32>
    %y = tosa.exp %a : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
After:
    %y = tosa.exp %x : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %0 = tosa.const_shape {values = dense<[1, 3, 4]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %y_1 = tosa.reshape %y, %0 : (tensor<3x4xf32>, !tosa.shape<3>) -> tensor<1x3x4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.axes import DATA, ELEMENTWISE, is_block_scaled
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.axes.alignment import dropped_units
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_spelled

REDUCTIONS = (t.ReduceSumOp, t.ReduceMaxOp, t.ReduceMinOp, t.ReduceProductOp)


@dataclass(frozen=True)
class Sunk:
    """`op` reads operands whose axes at `added` have size 1 and were put in by reshapes.

    Where `source` is given, they were reshaped from that shape in any way.
    """

    op: TosaOp
    added: tuple[int, ...]
    source: tuple[Dim, ...] | None = None


@dataclass(frozen=True)
class SinkReshape(Rewrite[Sunk]):
    """`f(unsqueeze(x))` to `unsqueeze(f(x))`, if every operand follows at no cost."""

    name: ClassVar[str] = "sink-reshape"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*ELEMENTWISE, *REDUCTIONS)

    def match(self, op: TosaOp, program: Program) -> Sunk | Refusal | None:
        """Every operand is a reshape that adds the same axes, or a constant with size 1 there."""
        data = data_operands(op)
        reshapes = [v.owner for v in data if isinstance(v.owner, t.ReshapeOp)]
        if not reshapes:
            return None
        if not is_spelled(*data, op.results[0], *(reshape.input1 for reshape in reshapes)):
            return Refusal("a shape is not known")
        if is_block_scaled(op):
            return Refusal("its blocks run along the last axis")
        first = reshapes[0]
        added = axes_added(shape_of(first.input1), shape_of(first.output))
        axes = self._unit_axes(op, data, added) if added else None
        if isinstance(axes, Sunk) or not isinstance(op, ELEMENTWISE):
            return axes
        return self._any_axes(op, data, shape_of(first.input1))

    def _any_axes(
        self, op: TosaOp, data: Sequence[SSAValue], source: tuple[Dim, ...]
    ) -> Sunk | Refusal:
        """All operands reshaped alike and read here alone; constants that fit both shapes."""
        result = shape_of(op.results[0])
        for value in data:
            shape, inner = shape_of(value), value.owner
            if isinstance(inner, t.ReshapeOp):
                if shape_of(inner.input1) != source or shape != result:
                    return Refusal("the operands were reshaped in different ways")
                if any(use.operation is not op for use in value.uses):
                    return Refusal("another op reads the reshape")
            elif weight_key(value) is None:
                return Refusal("an operand was not reshaped")
            elif elements(shape) != 1 and not keeps_last(shape, result, source):
                return Refusal("a constant varies along an axis that the reshape changes")
        per_channel = isinstance(op, t.RescaleOp) and op.per_channel.value.data
        if per_channel and source[-1:] != result[-1:]:
            return Refusal("it rescales each channel, which must be the last axis")
        return Sunk(op, (), source)

    def _unit_axes(
        self, op: TosaOp, data: Sequence[SSAValue], added: tuple[int, ...]
    ) -> Sunk | Refusal:
        """The axes have size 1 in every operand, and the reshapes did nothing else."""
        for value in data:
            shape = shape_of(value)
            if any(shape[axis] != 1 for axis in added):
                return Refusal("an operand has elements along an axis that was added")
            inner = value.owner
            if isinstance(inner, t.ReshapeOp):
                if shape_of(inner.input1) != without(shape, added):
                    return Refusal("the operands were reshaped in different ways")
            elif weight_key(value) is None:
                return Refusal("an operand was not reshaped")
        if isinstance(op, REDUCTIONS) and op.axis.value.data in added:
            return Refusal("the reduction runs along an axis that was added")
        return Sunk(op, added)

    def build(self, match: Sunk, rw: Rewriter) -> None:
        """The operator on what the reshapes read, then one reshape."""
        op, added, b = match.op, match.added, Builder(rw)
        data = data_operands(op)
        operands = [_source(value, match, b) for value in data]
        properties = dict(op.properties)
        if isinstance(op, REDUCTIONS):
            axis = op.axis.value.data
            properties["axis"] = IntegerAttr(axis - sum(a < axis for a in added), i32)
        result = op.results[0]
        shape = match.source or without(shape_of(result), added)
        rest = op.operands[len(data) :]
        new = b.op(type(op), [*operands, *rest], shape, element(result.type), **properties)
        new.name_hint = result.name_hint
        rw.replace(op, [b.reshape(new, shape_of(result))])


def data_operands(op: TosaOp) -> list[SSAValue]:
    """The operands whose axes are the result's: the others are parameters."""
    return list(op.operands[: DATA.get(type(op))])


def keeps_last(shape: Sequence[Dim], result: Sequence[Dim], source: Sequence[Dim]) -> bool:
    """Whether a constant varies along the last axis alone, which the reshape keeps."""
    return elements(shape[:-1]) == 1 and bool(source) and source[-1] == result[-1] == shape[-1]


def axes_added(source: Sequence[Dim], target: Sequence[Dim]) -> tuple[int, ...]:
    """Which axes of `target` a reshape put in, if that is all it did."""
    return tuple(sorted(dropped_units(target, source) or ()))


def without(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    """A shape with some axes taken out."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _source(value: SSAValue, match: Sunk, b: Builder) -> SSAValue:
    if isinstance(value.owner, t.ReshapeOp):
        return value.owner.input1
    shape = shape_of(value)
    if match.source is None:
        return b.reshape(value, without(shape, match.added))
    last = shape[-1] if shape else 1
    return b.reshape(value, (*[1] * (len(match.source) - 1), last) if match.source else ())
