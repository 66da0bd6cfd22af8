"""Layout assignment: choose an axis order for every int8 value so that transposes cost least.

Convolutions are written between a transpose to NHWC and one back. The tables, sums, pads,
concatenations and slices between them work in any order. `translate/layout` finds the minimum cut;
this file has CMSIS-NN's table of operators and costs for it.

Before:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xi8>, %t: tensor<256xi8>) -> tensor<1x2x3x4xi8> {
        %a = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>}
            : (tensor<1x2x3x4xi8>) -> tensor<1x4x2x3xi8>
        %b = cmsis.quantized_activation(%a, %t)
            : (tensor<1x4x2x3xi8>, tensor<256xi8>) -> tensor<1x4x2x3xi8>
        %y = cmsis.transpose(%b) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x4x2x3xi8>) -> tensor<1x2x3x4xi8>
        func.return %y : tensor<1x2x3x4xi8>
      }
    }
After, with `merge_movement.py` behind it: the same without a transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.costs import LAYOUT
from stepwell.dialects.cmsis.ops import (
    Maximum,
    Minimum,
    Pad,
    QuantizedActivation,
    QuantizedAdd,
    QuantizedDiv,
    QuantizedMul,
    Transpose,
)
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.axes.maps import Order, inverse, lies_the_same
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.layout.assign import PlaceTransposes
from stepwell.translate.layout.table import Layouts, Turning
from stepwell.translate.rewrites.cmsis.layout.absorb_flatten import absorbs_order
from stepwell.translate.rewrites.cmsis.layout.relabel_ports import is_relabeled
from stepwell.translate.rewrites.cmsis.layout.reshape import (
    padded,
    permuted,
    stored_type,
    transposed,
)
from stepwell.translate.rewrites.cmsis.operators.fold_kernel_sum import constant_key

BINARY = (QuantizedAdd, QuantizedMul, QuantizedDiv, Minimum, Maximum)
CAT, SLICE = op_class("aten.cat.default"), op_class("aten.slice.Tensor")


class CmsisLayouts(Layouts):
    """CMSIS-NN's layout table: operators for any axis order, and transposes that cost nothing."""

    KINDS: ClassVar[tuple[type[Operation], ...]] = (
        QuantizedActivation,
        Pad,
        *BINARY,
        StorageCast,
        CAT,
        SLICE,
    )

    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        owner = value.owner
        return (owner.input, owner.numbers("perm")) if isinstance(owner, Transpose) else None

    def may_turn(self, op: Operation, turning: Turning) -> bool:
        if isinstance(op, BINARY):  # A broadcast is along the axes that the kernel knows.
            return dims(op.operands[0].type) == dims(op.operands[1].type)
        held = quantization(op.operands[0].type) or quantization(op.results[0].type)
        return held is None or held.is_per_tensor

    def is_constant(self, value: SSAValue) -> bool:
        return constant_key(value) is not None

    def can_be_had(self, value: SSAValue, order: Order) -> bool:
        return super().can_be_had(value, order) and len(order) <= 4

    def cost(self, value: SSAValue, order: Order) -> float:
        shape = dims(value.type)
        is_view = lies_the_same(shape, inverse(order))
        if is_view or is_relabeled(value, order) or absorbs_order(value, order):
            return 0.0
        return LAYOUT.of(shape, in_place=False)

    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        back, key = inverse(order), weight_key(value)
        if key is not None:
            return rw.weight(rw.weights.derive("cmsis.permute", [key], permutation=list(back)))
        return turned(rw, value, back)

    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        return turned(rw, base, order)

    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        back, type_ = inverse(order), op.results[0].type
        result_type = tensor([dims(type_)[axis] for axis in back], element(type_))
        if isinstance(op, Pad):
            before, after = ([side[axis] for axis in back] for side in op.widths())
            return padded(rw, operands[0], before, after, op.number("pad_value"))
        if isinstance(op, SchemaOp):
            given = op.present()
            given["dim"] = order[cast(int, op.arg("dim")) % len(order)]
            given |= {"tensors": operands} if isinstance(op, CAT) else {"self": operands[0]}
            return rw.insert(type(op).from_arguments(given, [result_type])).results[0]
        return rw.insert(remade(op, operands, [result_type])).results[0]


def turned(rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
    """Permute the axes of a value; stored integers are permuted through their quantized value."""
    held = stored_type(value)
    return transposed(rw, value, order) if held is None else permuted(rw, value, held, order)


@dataclass(frozen=True)
class AssignLayouts(PlaceTransposes):
    """Rebuild operators on one side of a minimum cut so that they work before the transposes."""

    name: ClassVar[str] = "assign-layouts"
    TABLE: ClassVar[Layouts] = CmsisLayouts()
