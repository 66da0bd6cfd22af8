"""Take channels-last inputs and outputs in their memory order; transpose bytes, not floats.

A model traced with channels-last inputs declares NCHW inputs in NHWC memory. As NHWC tensors they
are row-major, so the layout change at the boundary only relabels the axes and runs nothing. Where
the op at the boundary needs NCHW, the integers are transposed: a quarter of the floats' bytes.

rule relabel-input
    quantize(input) → transpose(quantize(relabel(input))).
Before:
    %y = $step of ENTERS(%x, …) : (tensor<$*S x $F>) -> tensor<$*S x $I>
After:
    %r = cmsis.relabel(%x, perm=$order) : … -> tensor<*composed($S, $order) x $F>
    %q = $step(%r, …) : … -> tensor<*composed($S, $order) x $I>
    %y = transposed(%q, inverse($order))
with $order = order_taken(%x)
unless has_no_kernel($I, $S) for target
for %x lies as [0, 2, 3, 1]
for $step = "cmsis.quantize_per_tensor", $S = [1, 2, 3, 4], $F = f32, $I = i8
for $scale = 0.5, $zero_point = 0, $quant_min = -128, $quant_max = 127, $dtype = "int8"
not for $I = i16, $quant_min = -32768, $quant_max = 32767, $dtype = "int16"

rule relabel-output
    dequantize(x), returned → relabel(dequantize(transpose(x))).
Before:
    %y = $step of LEAVES(%x, …) : (tensor<$*S x $I>) -> tensor<$*S x $F>
After:
    %t = transposed(%x, $order)
    %r = $step(%t, …) : … -> tensor<*composed($S, $order) x $F>
    %y = cmsis.relabel(%r, perm=inverse($order))
with $order = order_given(%y)
unless has_no_kernel($I, $S) for target
for %y lies as [0, 2, 3, 1]
for $step = "cmsis.dequantize_per_tensor", $S = [1, 2, 3, 4], $F = f32, $I = i8
for $scale = 0.5, $zero_point = 0, $quant_min = -128, $quant_max = 127, $dtype = "int8"
not for $I = i16, $quant_min = -32768, $quant_max = 32767, $dtype = "int16"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, SSAValue

from stepwell.dialects.cmsis.ops import DequantizePerTensor, QuantizePerTensor
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.axes.maps import inverse, lies_the_same
from stepwell.ir.dtypes import i8
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.signature import get_signature
from stepwell.ir.types import Dim, dims
from stepwell.translate.quantized.recognize import not_int8
from stepwell.translate.rewrites.cmsis.layout import reshape
from stepwell.translate.rewrites.cmsis.layout.lower_permute import MOST_AXES
from stepwell.translate.rules import read_rules

ENTERS = (QuantizePerTensor, StorageCast)
LEAVES = (DequantizePerTensor, StorageCast)
"""Ops between a port's elements and integers, element by element."""


def order_taken(value: SSAValue) -> tuple[int, ...] | None:
    """Return the dim order that an input declares, if it differs from the order of its axes."""
    return _of_its_own(value, input_order(value))


def order_given(value: SSAValue) -> tuple[int, ...] | None:
    """Return the dim order of a value's only output, if it differs from the order of its axes."""
    return _of_its_own(value, output_order(value))


def _of_its_own(value: SSAValue, order: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if order is None or lies_the_same(dims(value.type), order) else order


def has_no_kernel(integers: Attribute, shape: Sequence[Dim]) -> Refusal | None:
    """Refuse integers that the kernel cannot transpose: it takes int8 of at most four axes."""
    if len(shape) > MOST_AXES:
        return Refusal(
            f"the value has {len(shape)} axes; the kernel that transposes takes {MOST_AXES}"
        )
    held = integers.data if isinstance(integers, UniformQuantizedType) else None
    other = not_int8(held) if held else None if integers == i8 else f"to {integers}, not int8"
    return Refusal(f"the value is quantized {other}") if other else None


def is_relabeled(value: SSAValue, order: tuple[int, ...]) -> bool:
    """Whether the transpose between a value and its source becomes a relabeling in this order."""
    step = value.owner
    if isinstance(step, ENTERS):
        return input_order(step.operands[0]) == inverse(order)
    if not value.has_one_use():
        return False
    step = next(iter(value.uses)).operation
    return isinstance(step, LEAVES) and output_order(step.results[0]) == inverse(order)


def output_order(value: SSAValue) -> tuple[int, ...] | None:
    """Return the dim order of the output that is a value's only use, or None for row-major."""
    use = next(iter(value.uses)) if value.has_one_use() else None
    if use is None or not isinstance(use.operation, ReturnOp):
        return None
    func = cast(FuncOp, use.operation.parent_op())
    return get_signature(func).runtime_outputs[use.index].dim_order


def input_order(value: SSAValue) -> tuple[int, ...] | None:
    """Return the dim order of an argument; None if it is row-major or not a program input."""
    func = value.owner.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(func, FuncOp):
        return None
    return get_signature(func).runtime_inputs[cast("BlockArgument", value).index].dim_order


RelabelInput, RelabelOutput = RULES = read_rules(__doc__, vars(reshape) | globals())
