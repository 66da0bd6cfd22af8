"""Addition, subtraction, multiplication, division, minimum and maximum of two int8 tensors.

Clamps after an addition narrow its range; after the others they are a table. One operand may
broadcast: along channels without a copy, else a constant is written out ahead of time and a
run-time value by an int8 expand. Division is the one operator of the library with an int16 form; it
saturates at −32768, one unit past a symmetric range.

Before:
    %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
    %b = quant.dcast %y : tensor<4x!quant.uniform<i8:f32, 0.5:2>> to tensor<4xf32>
    %s = aten.mul.Tensor(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %q = quant.qcast %s : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 1.0>>
After:
    %q = cmsis.quantized_mul(%x, %y) {self_zero_point = 0 : i64, other_zero_point = 2 : i64,
        output_zero_point = 0 : i64, output_multiplier = 1073741824 : i64,
        output_shift = -1 : i64}
        : (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5:2>>)
        -> tensor<4x!quant.uniform<i8:f32, 1.0>>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import (
    AddParameters,
    Multiplier,
    add_parameters,
    quantize_multiplier,
)
from stepwell.dialects.cmsis.kernels.elementwise import LEFT_SHIFT
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    Maximum,
    Minimum,
    QuantizedAdd,
    QuantizedDiv,
    QuantizedMul,
)
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import AnyTensor, dims, element, is_static, with_element
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    quantized_uses,
)
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
from stepwell.translate.rewrites.cmsis.operators.quantized import shift_refusal
from stepwell.translate.rewrites.cmsis.operators.rescale import kernel_type, rescaled, through_table
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped

ADD, SUB, MUL, DIV = (op_class(f"aten.{name}.Tensor") for name in ("add", "sub", "mul", "div"))
MINIMUM, MAXIMUM = (op_class(f"aten.{name}.default") for name in ("minimum", "maximum"))


@dataclass(frozen=True)
class Arithmetic:
    """An elementwise op of two quantised operands, every use of it quantised."""

    op: SchemaOp
    first: Activation
    second: Activation
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class LowerArithmetic(Rewrite[Arithmetic]):
    """q(op(dq(x), dq(y))) → cmsis."""

    name: ClassVar[str] = "lower-arithmetic"
    anchors: ClassVar[tuple[type[Operation], ...]] = (ADD, SUB, MUL, DIV, MINIMUM, MAXIMUM)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point requantisation, in units")

    def match(self, op: SchemaOp, program: Program) -> Arithmetic | Refusal | None:
        """Both operands and every use are int8; the factors are ones the kernel can apply."""
        if not all(isinstance(value.type, TensorType) for value in op.operands[:2]):
            return None
        bits = 16 if isinstance(op, DIV) and is_int16(op.operands[0]) else 8
        first, second = (activation(value, bits) for value in op.operands[:2])
        if isinstance(first, Refusal):
            return first
        if isinstance(second, Refusal):
            return second
        uses = quantized_uses(op.results[0], bits)
        if isinstance(uses, Refusal):
            return uses
        match = Arithmetic(op, first, second, uses)
        for use in uses:
            if bits == 16 and (use.low, use.high) != (use.held.low, use.held.high):
                return Refusal("a clamp follows it; the tables that clamp hold int8")
            if found := _factor_refusal(match, use):
                return found
        return match

    def build(self, match: Arithmetic, rw: Rewriter) -> None:
        """One op for each distinct quantisation of the result."""
        for use, group in distinct(match.uses):
            first, second = match.first.value, match.second.value
            if isinstance(match.op, (MINIMUM, MAXIMUM)):
                first, second = (_requantized(rw, v, use) for v in (first, second))
            value = self._broadcast(match, use, first, second, rw)
            if use.held.bits == 16:
                value = retyped(rw, value, use.type)
            deliver(rw, group, rescaled(rw, value, use) if use.held.bits == 8 else value)

    def _broadcast(
        self, match: Arithmetic, use: Use, first: SSAValue, second: SSAValue, rw: Rewriter
    ) -> SSAValue:
        """The op on operands of one shape, or along channels, which the kernels walk themselves."""
        shape, wide = dims(use.type), kernel_type(use)
        sides = [first, second]
        walks = isinstance(match.op, (ADD, SUB, MUL))
        for small in (0, 1) if walks else ():
            large = 1 - small
            given = dims(sides[small].type)
            if dims(sides[large].type) != shape or given == shape:
                continue
            if is_along_channels(given, shape):
                sides[large] = channels_last_view(rw, sides[large])
                sides[small] = channel_vector(rw, sides[small], cast(int, shape[1]))
                value = self._emit(match, use, sides, with_shape_of(sides[large], wide), rw)
                return from_channels_last_view(rw, value)
            if is_along_last(given, shape):
                sides[large] = rows_view(rw, sides[large])
                sides[small] = channel_vector(rw, sides[small], cast(int, shape[-1]))
                value = self._emit(match, use, sides, with_shape_of(sides[large], wide), rw)
                return from_rows_view(rw, value, shape)
        sides = [expanded(rw, side, shape) for side in sides]
        if len(shape) > 4 and isinstance(match.op, (MINIMUM, MAXIMUM)) and is_static(wide):
            # The kernels see the last four dimensions alone.
            flat = (math.prod(cast("tuple[int, ...]", shape)),)
            sides = [reshaped(rw, side, flat) for side in sides]
            value = self._emit(match, use, sides, with_shape_of(sides[0], wide), rw)
            return reshaped(rw, value, shape)
        return self._emit(match, use, sides, wide, rw)

    def _emit(
        self,
        match: Arithmetic,
        use: Use,
        sides: Sequence[SSAValue],
        wide: AnyTensor,
        rw: Rewriter,
    ) -> SSAValue:
        first, second = sides
        a, b, out = match.first.held, match.second.held, use.held
        zero_points = {
            "self_zero_point": a.zero_point,
            "other_zero_point": b.zero_point,
            "output_zero_point": out.zero_point,
        }
        made: CmsisOp
        if isinstance(match.op, (ADD, SUB)):
            made = _add(match, use, sides, with_element(wide, element(use.type)), zero_points)
        elif isinstance(match.op, MUL):
            factor = quantize_multiplier(a.scale * b.scale / out.scale)
            made = QuantizedMul.make(
                first,
                second,
                result=wide,
                output_multiplier=factor.multiplier,
                output_shift=factor.shift,
                **zero_points,
            )
        elif isinstance(match.op, DIV):
            scale = a.scale / (b.scale * out.scale)
            made = QuantizedDiv.make(first, second, result=wide, output_scale=scale, **zero_points)
        else:
            cls = Minimum if isinstance(match.op, MINIMUM) else Maximum
            made = cls.make(first, second, result=wide)
        return rw.insert(made).results[0]


def is_int16(value: SSAValue) -> bool:
    """Whether a float operand stands for an int16 value."""
    return not isinstance(activation(value, 16), Refusal)


def retyped(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """The same stored integers under a type that differs in its range alone."""
    held = quantization(value.type)
    assert held is not None
    if value.type == type_:
        return value
    raw = rw.insert(StorageCast(value, with_element(value.type, storage_element(held))))
    return rw.insert(StorageCast(raw.results[0], type_)).results[0]


def with_shape_of(value: SSAValue, type_: AnyTensor) -> AnyTensor:
    """A type's elements in a value's shape."""
    return with_element(value.type, type_.element_type)


def _add(
    match: Arithmetic,
    use: Use,
    sides: Sequence[SSAValue],
    type_: AnyTensor,
    zero_points: dict[str, int],
) -> CmsisOp:
    p = _add_parameters(match, use)
    return QuantizedAdd.make(
        *sides,
        result=type_,
        self_multiplier=p.first.multiplier,
        self_shift=p.first.shift,
        other_multiplier=p.second.multiplier,
        other_shift=p.second.shift,
        output_multiplier=p.output.multiplier,
        output_shift=p.output.shift,
        activation_min=use.low,
        activation_max=use.high,
        **zero_points,
    )


def _add_parameters(match: Arithmetic, use: Use) -> AddParameters:
    alpha = cast(int, match.op.arg("alpha"))
    coefficient = -alpha if isinstance(match.op, SUB) else alpha
    return add_parameters(
        match.first.held.scale, match.second.held.scale, use.held.scale, coefficient
    )


def _factor_refusal(match: Arithmetic, use: Use) -> Refusal | None:
    """Why the kernel cannot apply the factors that the scales ask for, or None."""
    a, b = match.first.held, match.second.held
    factors: list[Multiplier] = []
    if isinstance(match.op, (ADD, SUB)):
        alpha = match.op.arg("alpha")
        if not isinstance(alpha, int) or alpha == 0:
            return Refusal(f"alpha is {alpha}; a whole number other than 0 folds into a multiplier")
        p = _add_parameters(match, use)
        factors += [p.first, p.second, p.output]
        reach = 255 * (abs(p.first.real) + abs(p.second.real)) * (1 << LEFT_SHIFT)
        if p.output.shift > 0 and reach * 2.0**p.output.shift >= 1 << 31:
            return Refusal(
                f"a scale of {use.held.scale:g} for the sum of scales {a.scale:g} and {b.scale:g} "
                "takes the requantisation past int32; the operands nearly cancel in calibration"
            )
    elif isinstance(match.op, MUL):
        factors.append(quantize_multiplier(a.scale * b.scale / use.held.scale))
        if 255 * 255 << max(factors[0].shift, 0) >= 1 << 31:
            return Refusal(f"a factor of {factors[0].real:g} takes the product past int32")
    return shift_refusal(factors)


def _requantized(rw: Rewriter, value: SSAValue, use: Use) -> SSAValue:
    """An operand of minimum or maximum in the result's quantisation, which both must have."""
    wanted = quantization(kernel_type(use))
    assert wanted is not None
    type_ = with_element(value.type, UniformQuantizedType(wanted))
    return value if value.type == type_ else through_table(rw, value, wanted, type_)
