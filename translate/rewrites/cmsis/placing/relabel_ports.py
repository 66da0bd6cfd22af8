"""Takes channels-last inputs and outputs as they lie in memory, instead of transposing them.

A model traced with channels-last inputs declares them NCHW over NHWC memory. Seen as NHWC they are
row-major already, so the layout change at the door is a relabelling, which runs nothing.

rule relabel-input
    transpose(quantise(input)) → quantise(relabel(input)).
Before:
    %q = $step of ENTERS(%x, …) : (tensor<$*S x $F>) -> tensor<$*S x $I>
    %y = cmsis.transpose(%q, perm=$order) : (tensor<$*S x $I>) -> tensor<$*T x $I>
After:
    %r = cmsis.relabel(%x, perm=$order) : … -> tensor<$*T x $F>
    %y = $step(%r, …)
where is_taken_in_order(%x, $order) for choice
for %x lies as $order
for $step = "cmsis.quantize_per_tensor", $S = [1, 2, 3, 4], $T = [1, 3, 4, 2], $F = f32, $I = i8, $order = [0, 2, 3, 1]
for $scale = 0.5, $zero_point = 0, $quant_min = -128, $quant_max = 127, $dtype = "int8"

rule relabel-output
    dequantise(transpose(x)), returned → relabel(dequantise(x)).
Before:
    %t = cmsis.transpose(%x, perm=$order) : (tensor<$*S x $I>) -> tensor<$*T x $I>
    %y = $step of LEAVES(%t, …) : (tensor<$*T x $I>) -> tensor<$*T x $F>
After:
    %r = $step(%x, …) : … -> tensor<$*S x $F>
    %y = cmsis.relabel(%r, perm=$order)
where is_given_in_order(%y, $order) for choice
for %y lies as inverse($order)
for $step = "cmsis.dequantize_per_tensor", $S = [1, 3, 4, 2], $T = [1, 2, 3, 4], $F = f32, $I = i8, $order = [0, 3, 1, 2]
for $scale = 0.5, $zero_point = 0, $quant_min = -128, $quant_max = 127, $dtype = "int8"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, SSAValue

from stepwell.dialects.cmsis.ops import DequantizePerTensor, QuantizePerTensor
from stepwell.dialects.quant import StorageCast
from stepwell.ir.axes.maps import inverse
from stepwell.ir.signature import get_signature
from stepwell.translate.rules import read_rules

ENTERS = (QuantizePerTensor, StorageCast)
LEAVES = (DequantizePerTensor, StorageCast)
"""Steps between a port's elements and integers, element by element."""


def is_taken_in_order(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a value is an input that declares this dim order."""
    return input_order(value) == tuple(order)


def is_given_in_order(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether a value is an output alone, whose declared dim order undoes a transposition."""
    return output_order(value) == inverse(tuple(order))


def is_relabelled(value: SSAValue, order: tuple[int, ...]) -> bool:
    """Whether a transpose between a value and its base in this order becomes a relabelling."""
    step = value.owner
    if isinstance(step, ENTERS):
        return input_order(step.operands[0]) == inverse(order)
    if not value.has_one_use():
        return False
    step = next(iter(value.uses)).operation
    return isinstance(step, LEAVES) and output_order(step.results[0]) == inverse(order)


def output_order(value: SSAValue) -> tuple[int, ...] | None:
    """The dim order of the port that alone takes a value, or None for row-major."""
    use = next(iter(value.uses)) if value.has_one_use() else None
    if use is None or not isinstance(use.operation, ReturnOp):
        return None
    func = cast(FuncOp, use.operation.parent_op())
    return get_signature(func).runtime_outputs[use.index].dim_order


def input_order(value: SSAValue) -> tuple[int, ...] | None:
    """The dim order that an argument's port declares; None for row-major, and what is no port."""
    func = value.owner.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(func, FuncOp):
        return None
    return get_signature(func).runtime_inputs[cast("BlockArgument", value).index].dim_order


RelabelInput, RelabelOutput = RULES = read_rules(__doc__, globals())
