"""Layout assignment: choose an axis order for every value at once so that transposes cost least.

Convolutions are written between a transpose to NHWC and one back. The ops between them may work on
either side of the transposes. `translate/layout` finds the minimum cut; this file has TOSA's table
of operators and costs for it. Operators whose type requires the last axis (block-scaled data, a
rescale of each channel) keep it last.

Before:
    func.func @main(%x: tensor<1x4x4x8xf32>) -> tensor<1x4x4x8xf32> {
      %a = tosa.transpose %x {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x4x4x8xf32>) -> tensor<1x8x4x4xf32>
      %b = tosa.exp %a : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32>
      %y = tosa.transpose %b {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x8x4x4xf32>) -> tensor<1x4x4x8xf32>
      func.return %y : tensor<1x4x4x8xf32>
    }
After, with `merge-transposes` behind it: the same without a transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.axes import ELEMENTWISE, REDUCTIONS, is_block_scaled
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import shape_value
from stepwell.dialects.tosa.costs import LAYOUT
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.axes.maps import AxisMap, Order, inverse, lies_the_same
from stepwell.ir.dtypes import i32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.layout.assign import PlaceTransposes
from stepwell.translate.layout.table import Layouts, Turning
from stepwell.translate.rewrites.tosa.layout.merge_layout import transposed
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_spelled

ALONG_AXIS = (*REDUCTIONS, t.ConcatOp, t.ReverseOp)
"""Operators that name one axis."""


class TosaLayouts(Layouts):
    """The table of layouts for TOSA's operators."""

    KINDS: ClassVar[tuple[type[Operation], ...]] = (
        *ELEMENTWISE,
        *ALONG_AXIS,
        t.PadOp,
        t.SliceOp,
        t.ReshapeOp,
    )

    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        owner = value.owner
        if type(owner) is not t.TransposeOp:  # This is queried for every value, several times.
            return None
        return owner.input, tuple(ints(owner.perms))

    def data(self, op: Operation, axes: AxisMap) -> list[int]:
        if isinstance(op, t.RescaleOp):
            return [0]
        return super().data(op, axes)

    def may_turn(self, op: Operation, turning: Turning) -> bool:
        assert isinstance(op, TosaOp)
        values = [op.operands[index] for index in turning.operands]
        if not is_spelled(*values, op.results[0]) or is_block_scaled(op):
            return False
        if isinstance(op, t.RescaleOp) and op.per_channel.value.data:
            return turning.order[-1] == len(turning.order) - 1
        return not isinstance(op, t.PadOp) or shape_value(op.padding) is not None

    def cost(self, value: SSAValue, order: Order) -> float:
        shape = dims(value.type)
        return LAYOUT.of(shape, lies_the_same(shape, inverse(order)))

    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        return transposed(value, inverse(order), Builder(rw))

    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        return Builder(rw).transpose(base, order)

    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        assert isinstance(op, TosaOp)
        back, b, properties = inverse(order), Builder(rw), dict(op.properties)
        result_shape = shape_of(op.results[0])
        shape = [result_shape[axis] for axis in back]
        match op:
            case t.ReshapeOp():
                return b.reshape(operands[0], shape)
            case t.PadOp():
                pad = shape_value(op.padding)
                assert pad is not None
                operands[1] = b.sizes([pad[2 * back[i // 2] + i % 2] for i in range(len(pad))])
            case t.SliceOp():
                start = shape_value(op.start)
                assert start is not None
                operands[1:] = [b.sizes([start[axis] for axis in back]), b.sizes(shape)]
            case _:
                axis = properties.get("axis")
                if isinstance(axis, IntegerAttr):
                    properties["axis"] = IntegerAttr(order[axis.value.data], i32)
        return b.op(type(op), operands, shape, element(op.results[0].type), **properties)


@dataclass(frozen=True)
class AssignLayouts(PlaceTransposes):
    """Rebuild operators on one side of a minimum cut so that they work before the transposes."""

    name: ClassVar[str] = "assign-layouts"
    TABLE: ClassVar[Layouts] = TosaLayouts()
