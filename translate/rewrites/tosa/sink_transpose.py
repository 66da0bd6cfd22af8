"""Move transposes behind the operators that compute each element, until they meet and cancel.

Before:
    func.func @main(%x: tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32> {
      %a = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
      %y = tosa.exp %a : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
      func.return %y : tensor<1x8x4x4xf32>
    }
After:
    func.func @main(%x: tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32> {
      %a = tosa.exp %x : (tensor<1x4x4x8xf32>) -> tensor<1x4x4x8xf32>
      %y = tosa.transpose %a {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
      func.return %y : tensor<1x8x4x4xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import shape_value
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.merge_layout import moves_nothing, transposed
from stepwell.translate.rewrites.tosa.sizes import is_spelled

ELEMENTWISE: tuple[type[TosaOp], ...] = (
    t.AbsOp,
    t.AddOp,
    t.CastOp,
    t.CeilOp,
    t.ClampOp,
    t.CosOp,
    t.EqualOp,
    t.ErfOp,
    t.ExpOp,
    t.FloorOp,
    t.GreaterEqualOp,
    t.GreaterOp,
    t.LogOp,
    t.LogicalAndOp,
    t.LogicalNotOp,
    t.LogicalOrOp,
    t.MaximumOp,
    t.MinimumOp,
    t.MulOp,
    t.NegateOp,
    t.PowOp,
    t.ReciprocalOp,
    t.RescaleOp,
    t.RsqrtOp,
    t.SelectOp,
    t.SigmoidOp,
    t.SinOp,
    t.SubOp,
    t.TableOp,
    t.TanhOp,
)

PARAMETERS: dict[type[TosaOp], int] = {t.MulOp: 2, t.NegateOp: 1, t.RescaleOp: 1, t.TableOp: 1}
"""How many of the first operands are data, where the rest are parameters."""

ALONG_AXIS: tuple[type[TosaOp], ...] = (
    t.ReduceSumOp,
    t.ReduceMaxOp,
    t.ReduceMinOp,
    t.ReduceProductOp,
    t.ConcatOp,
    t.ReverseOp,
)


@dataclass(frozen=True)
class Sunk:
    """`op` reads operands through transposes of one order."""

    op: TosaOp
    order: tuple[int, ...]


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes another."""
    result = [0] * len(order)
    for position, axis in enumerate(order):
        result[axis] = position
    return tuple(result)


def is_block_scaled(op: TosaOp) -> bool:
    """Whether an operand or result is of a block-scaled type."""
    return any(
        isinstance(value.type, TensorType) and isinstance(element(value.type), BlockScaledType)
        for value in (*op.operands, *op.results)
    )


def data_operands(op: TosaOp) -> Sequence[SSAValue]:
    """The operands that are tensors of the result's axes."""
    if isinstance(op, t.PadOp | t.SliceOp):
        return op.operands[:1]
    return op.operands[: PARAMETERS.get(type(op), len(op.operands))]


@dataclass(frozen=True)
class SinkTranspose(Rewrite[Sunk]):
    """`f(transpose(x))` to `transpose(f(x))`, if every operand follows at no cost."""

    name: ClassVar[str] = "sink-transpose"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *ELEMENTWISE,
        *ALONG_AXIS,
        t.PadOp,
        t.SliceOp,
    )

    def match(self, op: TosaOp, program: Program) -> Sunk | Refusal | None:
        """One operand is a transpose; the others are of the same order, constant, or vectors."""
        data = data_operands(op)
        transposes = [v.owner for v in data if isinstance(v.owner, t.TransposeOp)]
        if not transposes:
            return None
        if not is_spelled(*data, op.results[0]):
            return Refusal("a shape is not known")
        if is_block_scaled(op):
            return Refusal("its blocks run along the last axis")
        if isinstance(op, t.RescaleOp) and op.per_channel.value.data:
            return Refusal("it rescales each channel, which must be the last axis")
        if isinstance(op, t.SliceOp) and len(list(op.input1.uses)) > 1:
            return Refusal("other ops read the transpose too")
        order = tuple(ints(transposes[0].perms))
        back = inverse(order)
        for value in data:
            if isinstance(value.owner, t.TransposeOp):
                if tuple(ints(value.owner.perms)) != order:
                    return Refusal("the operands are transposed in different orders")
            elif weight_key(value) is None and not moves_nothing(shape_of(value), back):
                return Refusal("an operand is not transposed")
        if any(shape_value(value) is None for value in parameters(op)):
            return Refusal("a shape is computed at run time")
        return Sunk(op, order)

    def build(self, match: Sunk, rw: Rewriter) -> None:
        """The operator on what the transposes read, then one transpose."""
        op, order, b = match.op, match.order, Builder(rw)
        back = inverse(order)
        data = data_operands(op)
        operands = [_untransposed(value, back, b) for value in data]
        rest: list[SSAValue] = list(op.operands[len(data) :])
        if isinstance(op, t.PadOp):
            pad = shape_value(op.padding)
            assert pad is not None
            rest[0] = b.sizes([pad[2 * back[i // 2] + i % 2] for i in range(len(pad))])
        elif isinstance(op, t.SliceOp):
            start = shape_value(op.start)
            assert start is not None
            size = shape_of(op.output)
            rest = [b.sizes([part[axis] for axis in back]) for part in (start, size)]
        properties = dict(op.properties)
        if isinstance(op, ALONG_AXIS):
            axis = properties["axis"]
            assert isinstance(axis, IntegerAttr)
            properties["axis"] = IntegerAttr(order[axis.value.data], i32)
        result = op.results[0]
        held = shape_of(result)
        shape = [held[axis] for axis in back]
        new = b.op(type(op), [*operands, *rest], shape, element(result.type), **properties)
        new.name_hint = result.name_hint
        rw.replace(op, [transposed(new, order, b)])


def parameters(op: TosaOp) -> Sequence[SSAValue]:
    """The shape operands of PAD and SLICE that the result's type does not spell."""
    return op.operands[1:2] if isinstance(op, t.PadOp | t.SliceOp) else ()


def _untransposed(value: SSAValue, back: Sequence[int], b: Builder) -> SSAValue:
    if isinstance(value.owner, t.TransposeOp):
        return value.owner.input
    return transposed(value, back, b)
