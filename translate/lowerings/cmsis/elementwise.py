"""Lowerings of arithmetic, minimum and maximum, elementwise functions, and softmax.

Clamps after an addition narrow its range; after other ops they become a table. One operand may
broadcast: along channels without a copy; otherwise a constant is expanded at compile time and a
run-time value by an int8 expand. Division is the library's only operator with an int16 form; it
saturates at −32768, one unit past a symmetric range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import (
    PROBABILITY_SCALE,
    PROBABILITY_ZERO_POINT,
    add_parameters,
)
from stepwell.dialects.cmsis.kernels.elementwise import LEFT_SHIFT
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    Maximum,
    Minimum,
    QuantizedActivation,
    QuantizedAdd,
    QuantizedDiv,
    QuantizedMul,
    Softmax,
)
from stepwell.dialects.cmsis.ops.softmax import softmax_parameters, softmax_row_is_safe
from stepwell.dialects.quant import StorageCast, UniformQuantizedType, per_tensor
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewriter
from stepwell.ir.types import AnyTensor, dims, element, is_static, with_element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.cmsis.values import factor_of, needs_shifts, written
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.quantized.functions import byte_chain, table_of
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Activation, Use, activation
from stepwell.translate.rewrites.cmsis.layout.reshape import reshaped, transposed
from stepwell.translate.rewrites.cmsis.operators.broadcast import (
    channel_vector,
    channels_last_view,
    expanded,
    from_channels_last_view,
    from_rows_view,
    is_along_channels,
    is_along_last,
    rows_view,
)
from stepwell.translate.rewrites.cmsis.operators.rescale import kernel_type, rescaled, through_table

Sides = tuple[SSAValue, SSAValue]
TWO = """
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
    %b = quant.dcast %z : tensor<4x!quant.uniform<i8:f32, 0.5:2>> to tensor<4xf32>
    %s = aten.mul.Tensor(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %y = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 1.0>>
"""


def _two(op: SchemaOp) -> Parts | None:
    """Match two quantized tensors; 16-bit ones for a division."""
    operands = op.operands[:2]
    if not all(isinstance(value.type, TensorType) for value in operands):
        return None
    is_wide = op.name == "aten.div.Tensor" and not isinstance(activation(operands[0], 16), Refusal)
    return Parts(operands, bits=16 if is_wide else 8)


@lowers(
    {
        "aten.add.Tensor": QuantizedAdd,
        "aten.sub.Tensor": QuantizedAdd,
        "aten.mul.Tensor": QuantizedMul,
        "aten.div.Tensor": QuantizedDiv,
        "aten.minimum.default": Minimum,
        "aten.maximum.default": Maximum,
    },
    to="cmsis",
    quantized_operands=_two,
    takes_empty=True,
    sample=TWO,
)
def arithmetic(
    x: Activation, other: Activation, *, form: type[CmsisOp], op: Any, use: Use, b: Rewriter
) -> SSAValue:
    """Lower arithmetic of two tensors to one kernel, and a table lookup if the result has a range
    that the kernel cannot clamp to.
    """
    if use.held.bits == 16 and (use.low, use.high) != (use.held.low, use.held.high):
        refuse("an int16 result is clamped; only int8 tables can clamp")
    fields = _fields(x, other, form, op, use)
    sides = (x.value, other.value)
    chooses = form in (Minimum, Maximum)
    if chooses:
        sides = (requantized(b, x.value, use), requantized(b, other.value, use))

    def node(sides: Sides, wide: AnyTensor) -> SSAValue:
        if form is QuantizedAdd:
            wide = with_element(wide, element(use.type))
        made: Callable[..., CmsisOp] = getattr(form, "make")  # noqa: B009
        return written(made(*sides, result=wide, **fields), b)

    value = _broadcast(node, sides, use, not chooses and form is not QuantizedDiv, chooses, b)
    return _retyped(b, value, use.type) if use.held.bits == 16 else rescaled(b, value, use)


def _fields(
    x: Activation, other: Activation, form: type[CmsisOp], op: Any, use: Use
) -> dict[str, Any]:
    """Return the zero points and requantization multipliers of a node; refuse factors that its
    kernel cannot apply.
    """
    one, two, out = x.held, other.held, use.held
    zero_points = {
        "self_zero_point": one.zero_point,
        "other_zero_point": two.zero_point,
        "output_zero_point": out.zero_point,
    }
    if form is QuantizedAdd:
        alpha = op.arg("alpha")
        if not isinstance(alpha, int) or alpha == 0:
            refuse(f"alpha is {alpha}; only an integer other than 0 folds into a multiplier")
        signed = -alpha if op.name == "aten.sub.Tensor" else alpha
        p = add_parameters(one.scale, two.scale, out.scale, signed)
        reach = 255 * (abs(p.first.real) + abs(p.second.real)) * (1 << LEFT_SHIFT)
        if p.output.shift > 0 and reach * 2.0**p.output.shift >= 1 << 31:
            refuse(
                f"a scale of {out.scale:g} for the sum of operands with scales {one.scale:g} and {two.scale:g} takes the requantization past int32; the operands nearly cancel in calibration"
            )
        needs_shifts(p.first, p.second, p.output)
        return {
            "self_multiplier": p.first.multiplier,
            "self_shift": p.first.shift,
            "other_multiplier": p.second.multiplier,
            "other_shift": p.second.shift,
            "output_multiplier": p.output.multiplier,
            "output_shift": p.output.shift,
            "activation_min": use.low,
            "activation_max": use.high,
        } | zero_points
    if form is QuantizedMul:
        factor = factor_of(one.scale * two.scale / out.scale)
        if 255 * 255 << max(factor.shift, 0) >= 1 << 31:
            refuse(f"a factor of {factor.real:g} takes the product past int32")
        numbers = {"output_multiplier": factor.multiplier, "output_shift": factor.shift}
        return numbers | zero_points
    if form is QuantizedDiv:
        return {"output_scale": one.scale / (two.scale * out.scale)} | zero_points
    return {}


def _broadcast(
    node: Callable[[Sides, AnyTensor], SSAValue],
    sides: Sides,
    use: Use,
    walks: bool,
    chooses: bool,
    b: Rewriter,
) -> SSAValue:
    """Apply the op to operands of one shape, or broadcast along channels, which kernels support."""
    shape, wide = dims(use.type), kernel_type(use)
    for small in (0, 1) if walks else ():
        large = sides[1 - small]
        given = dims(sides[small].type)
        if dims(large.type) != shape or given == shape:
            continue
        if is_along_channels(given, shape):
            large, channels = channels_last_view(b, large), shape[1]
        elif is_along_last(given, shape):
            large, channels = rows_view(b, large), shape[-1]
        else:
            continue
        vector = channel_vector(b, sides[small], cast(int, channels))
        both = (vector, large) if small == 0 else (large, vector)
        value = node(both, with_element(large.type, wide.element_type))
        if is_along_channels(given, shape):
            return from_channels_last_view(b, value)
        return from_rows_view(b, value, shape)
    first, second = (expanded(b, side, shape) for side in sides)
    if len(shape) > 4 and chooses and is_static(wide):
        # The kernels use the last four dimensions only.
        flat = (math.prod(cast("tuple[int, ...]", shape)),)
        first, second = (reshaped(b, side, flat) for side in (first, second))
        value = node((first, second), with_element(first.type, wide.element_type))
        return reshaped(b, value, shape)
    return node((first, second), wide)


def _retyped(b: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """Return the stored integers with a quantized type that differs only in its range."""
    value_quantization = quantization(value.type)
    assert value_quantization is not None
    if value.type == type_:
        return value
    raw = b.insert(
        StorageCast(value, with_element(value.type, storage_element(value_quantization)))
    )
    return b.insert(StorageCast(raw.results[0], type_)).results[0]


def requantized(b: Rewriter, value: SSAValue, use: Use) -> SSAValue:
    """Return an operand of minimum or maximum in the result's quantization, which both require."""
    wanted = quantization(kernel_type(use))
    assert wanted is not None
    type_ = with_element(value.type, UniformQuantizedType(wanted))
    return value if value.type == type_ else through_table(b, value, wanted, type_)


@lowers(
    "quant.qcast",
    to="cmsis",
    check="none",
    bound=EXACT,
    name="tabulate",
    sample="""
        %r = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
        %t = aten.tanh.default(%r) : (tensor<4xf32>) -> tensor<4xf32>
        %q = quant.qcast %t : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.25>>
    """,
)
def tabulate(x: Value, *, op: Any, b: Rewriter) -> Value | None:
    """Lower any function of one int8 value exactly, to a table of 256 entries.

    This covers activations (sigmoid, hardswish, …), arithmetic with a scalar (`x * 0.5`,
    `1 - x`), chains of both, and changes of scale and zero point. The ops themselves are
    evaluated on all 256 stored values, so that the table has the float graph's results bit for bit.
    Scalars may be reals or quantized constants of one element.
    """
    chain = no_refusal(byte_chain(op))
    if chain is None:
        return None
    table = b.constant(table_of(chain, b.program), "table")
    made = QuantizedActivation.make(chain.source, table, result=op.result.type)
    return Value(written(made, b), b)


def _rows(op: SchemaOp) -> Parts | Refusal:
    """Match a softmax over rows of static length that are short enough.

    Rows of more than 511 can reach a sum for which the kernel is undefined (it then returns zeros).
    """
    shape = dims(op.operands[0].type)
    if not shape:
        return Refusal("a scalar has no rows")
    dim = cast(int, op.arg("dim")) % len(shape)
    row = shape[dim]
    if not isinstance(row, int):
        return Refusal("the length of the rows is known only at run time")
    if not softmax_row_is_safe(row):
        return Refusal(
            f"a row of {row} can reach a sum of 2**28, where arm_softmax_s8 is undefined "
            "(511 is the longest safe one)"
        )
    if dim != len(shape) - 1 and len(shape) > 4:
        return Refusal("a transposition of more than 4 dimensions would be needed")
    return Parts(op.operands[:1])


@lowers(
    "aten.softmax.int",
    "aten._softmax.default",
    to="cmsis",
    quantized_operands=_rows,
    bound=Bound(absolute=1.0, reason="fixed-point exponential, in units"),
    sample="""
        %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x8xf32>
        %s = aten.softmax.int(%a, -1) : (tensor<2x8xf32>) -> tensor<2x8xf32>
        %y = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
    """,
)
def softmax(x: Activation, *, dim: int, layer: Layer, b: Rewriter) -> Callable[[Use], SSAValue]:
    """Lower to a softmax over the last dimension; add a table lookup for another output type.

    The kernel's result has scale 1/256 and zero point −128; another quantization takes a table
    lookup, unless its scale is finer.
    """
    p = softmax_parameters(x.held.scale)
    needs_shifts(p.input)
    for use in layer.uses:
        if use.held.scale < PROBABILITY_SCALE * (1 - 1e-6):
            refuse(f"the result has scale {use.held.scale:g}, finer than the kernel's 1/256")
    rank = len(dims(x.value.type))
    order = [*(axis for axis in range(rank) if axis != dim % rank), dim % rank]
    rows = transposed(b, x.value, order)
    op = Softmax.make(
        rows,
        result=with_element(
            rows.type, per_tensor(torch.int8, PROBABILITY_SCALE, PROBABILITY_ZERO_POINT)
        ),
        dim=-1,
        input_zero_point=x.held.zero_point,
        output_zero_point=PROBABILITY_ZERO_POINT,
        input_multiplier=p.input.multiplier,
        input_shift=p.input.shift,
        diff_min=p.diff_min,
    )
    back = [order.index(axis) for axis in range(rank)]
    value = transposed(b, written(op, b), back)
    return lambda use: rescaled(b, value, use)


RULES = lowerings_of(__name__)
