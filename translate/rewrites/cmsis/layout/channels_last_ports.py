"""Accept and return images channels last, so that no whole image is transposed in the arena.

Convolutions and pools of the library are NHWC. A model that was exported with torch's image layout
(NCHW) begins with a copy of its input in the other order. The copy is in memory together with the
input, which is often the peak of memory. A caller's camera writes channels last anyway.

Before:
    builtin.module {
      func.func @forward(%x: tensor<1x3x4x4xi8>) -> tensor<1x4x4x3xi8> attributes
          {stepwell.inputs = [{name = "x"}]} {
        %q = quant.scast %x : tensor<1x3x4x4xi8> to tensor<1x3x4x4x!quant.uniform<i8:f32, 0.5:3>>
        %t = cmsis.transpose(%q) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x3x4x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x4x3x!quant.uniform<i8:f32, 0.5:3>>
        %y = quant.scast %t : tensor<1x4x4x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x4x4x3xi8>
        func.return %y : tensor<1x4x4x3xi8>
      }
    }
After:
    builtin.module {
      func.func @forward(%x: tensor<1x3x4x4xi8>) -> tensor<1x4x4x3xi8> attributes
          {stepwell.inputs = [{name = "x", dim_order = array<i64: 0, 2, 3, 1>}]} {
        %q = quant.scast %x : tensor<1x3x4x4xi8> to tensor<1x3x4x4x!quant.uniform<i8:f32, 0.5:3>>
        %t = cmsis.transpose(%q) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x3x4x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x4x3x!quant.uniform<i8:f32, 0.5:3>>
        %y = quant.scast %t : tensor<1x4x4x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x4x4x3xi8>
        func.return %y : tensor<1x4x4x3xi8>
      }
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.cmsis.ops import Transpose
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC, NHWC_TO_NCHW
from stepwell.dialects.quant import StorageCast
from stepwell.ir.axes.maps import axis_map, kept
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.signature import Port, get_signature, set_signature
from stepwell.ir.types import dims

AS_EXPORTED, CHANNELS_LAST = "as exported", "channels last"
"""The memory layout of images at the program's boundary."""


@dataclass(frozen=True)
class ChannelsLastPorts(Pass):
    """Make inputs and outputs that are transposed images channels last in the caller's memory."""

    name: ClassVar[str] = "channels-last-ports"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of inputs and outputs whose layout changed."""
        return sum(_relaid(func) for func in program.methods.values())


def _relaid(func: FuncOp) -> int:
    signature = get_signature(func)
    returned = cast(ReturnOp, func.body.block.last_op).operands
    taken = [_is_turned(value, NCHW_TO_NHWC) for value in func.body.block.args]
    given = [_was_turned(value) for value in returned]
    inputs, outputs = _laid(signature.inputs, taken), _laid(signature.outputs, given)
    set_signature(func, replace(signature, inputs=inputs, outputs=outputs))
    before = (*signature.inputs, *signature.outputs)
    return sum(one is not other for one, other in zip(before, (*inputs, *outputs), strict=True))


def _laid(ports: Sequence[Port], is_turned: Sequence[bool]) -> tuple[Port, ...]:
    held = iter(is_turned)
    return tuple(
        replace(port, dim_order=NCHW_TO_NHWC)
        if port.constant is None and next(held) and port.dim_order is None
        else port
        for port in ports
    )


def _is_turned(value: SSAValue, order: tuple[int, ...]) -> bool:
    """Whether all values computed elementwise from a value are then transposed to one order."""
    uses = [use.operation for use in value.uses]
    return bool(uses) and all(
        _order(op) == order if _order(op) is not None else _is_kept(op) and _is_turned(
            op.results[0], order
        )
        for op in uses
    )  # fmt: skip


def _was_turned(value: SSAValue) -> bool:
    """Whether a value is computed elementwise from a value that was transposed back to NCHW."""
    op = value.owner
    while isinstance(op, Operation) and _is_kept(op):
        op = op.operands[0].owner
    return isinstance(op, Operation) and _order(op) == NHWC_TO_NCHW


def _order(op: Operation) -> tuple[int, ...] | None:
    """Return the order to which a transpose permutes its operand."""
    return tuple(op.numbers("perm")) if isinstance(op, Transpose) else None


def _is_kept(op: Operation) -> bool:
    """Whether an op has one operand and one result and is elementwise."""
    if isinstance(op, StorageCast):
        return True
    if len(op.operands) != 1 or len(op.results) != 1:
        return False
    shapes = [dims(value.type) for value in (*op.operands, *op.results)]
    axes = axis_map(op)
    return axes is not None and shapes[0] == shapes[1] and axes.links[0] == kept(len(shapes[0]))
