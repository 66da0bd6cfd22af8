"""Shape rules of operators with the operands' common shape, casts, and shape arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.axes import BINARY, COMPARISONS, UNARY
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.constants import shape_value
from stepwell.dialects.tosa.meaning import shapes as sizes
from stepwell.dialects.tosa.meaning.values import element_of
from stepwell.dialects.tosa.shapes.rules import (
    Expected,
    broadcast,
    need,
    ranked,
    shape_of,
    shaped,
    sizes_of,
)
from stepwell.dialects.tosa.shapes.zero_points import (
    constant_number,
    constant_numbers,
    need_zero_point,
)
from stepwell.ir.dtypes import i1, i8, i16, i32
from stepwell.ir.sizes.size import UNKNOWN, Size


@shaped(*UNARY)
def _same_type(op: TosaOp) -> Sequence[Expected]:
    return [(shape_of(op.operands[0]), element_of(op.operands[0]))]


def _one_element(op: TosaOp) -> None:
    a, b = element_of(op.operands[0]), element_of(op.operands[1])
    need(a == b, "the operands are {} and {}", a, b)


@shaped(*BINARY)
def _binary(op: TosaOp) -> Sequence[Expected]:
    _one_element(op)
    shape = broadcast(shape_of(op.operands[0]), shape_of(op.operands[1]))
    return [(shape, element_of(op.operands[0]))]


@shaped(*COMPARISONS)
def _comparison(op: TosaOp) -> Sequence[Expected]:
    _one_element(op)
    return [(broadcast(shape_of(op.operands[0]), shape_of(op.operands[1])), i1)]


@shaped(t.MulOp)
def _mul(op: t.MulOp) -> Sequence[Expected]:
    _one_element(op)
    element = element_of(op.input1)
    ranked(op.shift, 1, "the shift")
    need(element_of(op.shift) == i8, f"the shift is {element_of(op.shift)}, not i8")
    target = i32 if element in (i8, i16) else element
    return [(broadcast(shape_of(op.input1), shape_of(op.input2)), target)]


@shaped(t.ClampOp)
def _clamp(op: t.ClampOp) -> Sequence[Expected]:
    element = element_of(op.input)
    for bound in (op.min_val, op.max_val):
        need(bound.type == element, f"a bound is {bound.type}, the input {element}")
    low, high = _number(op.min_val), _number(op.max_val)
    need(not low > high, f"the least value {low} is above the greatest {high}")
    need(low == low and high == high, "a bound is NaN")
    return [(shape_of(op.input), element)]


def _number(bound: IntegerAttr | FloatAttr) -> float:
    return bound.value.data


@shaped(t.NegateOp)
def _negate(op: t.NegateOp) -> Sequence[Expected]:
    element = element_of(op.input1)
    need_zero_point(op.input1_zp, element, "input")
    need_zero_point(op.output_zp, element, "output")
    return [(shape_of(op.input1), element)]


@shaped(t.SelectOp)
def _select(op: t.SelectOp) -> Sequence[Expected]:
    need(element_of(op.input1) == i1, "the condition is not i1")
    element = element_of(op.input2)
    need(element_of(op.input3) == element, f"the choices are {element} and {element_of(op.input3)}")
    shape = broadcast(shape_of(op.input2), shape_of(op.input3))
    return [(broadcast(shape_of(op.input1), shape), element)]


@shaped(t.TableOp)
def _table(op: t.TableOp) -> Sequence[Expected]:
    element = element_of(op.input1)
    need(element in (i8, i16), f"a table has no form on {element}")
    need(
        element_of(op.table) == element, f"the table is {element_of(op.table)}, the input {element}"
    )
    (size,) = ranked(op.table, 1, "the table")
    due = 256 if element == i8 else 513
    need(size == due, f"the table has {size} entries, expected {due}")
    return [(shape_of(op.input1), i8 if element == i8 else i32)]


@shaped(t.CastOp)
def _cast(op: t.CastOp) -> Sequence[Expected]:
    return [(shape_of(op.input), None)]


@shaped(t.RescaleOp)
def _rescale(op: t.RescaleOp) -> Sequence[Expected]:
    source, target = element_of(op.input), element_of(op.output)
    scale32, per_channel = bool(op.scale32.value.data), bool(op.per_channel.value.data)
    taken, given = bool(op.input_unsigned.value.data), bool(op.output_unsigned.value.data)
    need(not (scale32 and source == i48), "int48 has no 32-bit multiplier")
    multiplier = i32 if scale32 else i16
    need(element_of(op.multiplier) == multiplier, "the multiplier is not {}", multiplier)
    need(element_of(op.shift) == i8, "the shift is not i8")
    need(op.rounding_mode.data != "DOUBLE_ROUND" or scale32, "double rounding needs 32-bit scales")
    need(not (taken and given), "both input and output are unsigned")
    wide = source in (i32, i48) or target in (i32, i48)
    need(
        not (wide and (taken or given)),
        "unsigned values have no rescale from {} to {}",
        source,
        target,
    )
    shape = shape_of(op.input)
    channels = 1
    if per_channel:
        need(shape is None or len(shape) > 0, "a scalar has no channels")
        channels = shape[-1] if shape else UNKNOWN
    for name, value in (("multiplier", op.multiplier), ("shift", op.shift)):
        (size,) = ranked(value, 1, f"the {name}")
        need(
            isinstance(channels, Size) or size == channels,
            f"there are {size} of {name}, {channels} are due",
        )
    for shift in constant_numbers(op.shift):
        need(2 <= shift <= 62, f"a shift of {shift:g} is not within 2 and 62")
    for number in constant_numbers(op.multiplier):
        need(number >= 0, f"a multiplier of {number:g} is negative")
    need_zero_point(op.input_zp, source, "input", unsigned=taken)
    need_zero_point(op.output_zp, target, "output", unsigned=given)
    return [(shape, target)]


def _shape_result(op: TosaOp, rank: int) -> Sequence[Expected]:
    sizes_of(op.results[0], "the result", rank)
    return [(None, None)]


@shaped(*sizes.BINARY, *sizes.UNARY)
def _shape_arithmetic(op: TosaOp) -> Sequence[Expected]:
    ranks: set[int] = set()
    for value in op.operands:
        sizes_of(value, "an operand")
        ranks.add(value.type.rank.data)  # pyright: ignore
    need(len(ranks) == 1, f"the operands differ in their number of sizes: {sorted(ranks)}")
    return _shape_result(op, ranks.pop())


@shaped(t.ConstShapeOp)
def _const_shape(op: t.ConstShapeOp) -> Sequence[Expected]:
    type_ = op.values.type
    assert isinstance(type_, TensorType)
    return _shape_result(op, type_.get_shape()[0])


@shaped(t.ConcatShapeOp)
def _concat_shape(op: t.ConcatShapeOp) -> Sequence[Expected]:
    need(bool(op.operands), "there are no operands")
    total = 0
    for value in op.operands:
        sizes_of(value, "an operand")
        rank = value.type.rank.data  # pyright: ignore
        need(rank > 0, "an operand has no sizes")
        total += rank
    return _shape_result(op, total)


@shaped(t.SliceShapeOp)
def _slice_shape(op: t.SliceShapeOp) -> Sequence[Expected]:
    sizes_of(op.input, "the input")
    rank = op.input.type.rank.data  # pyright: ignore
    for name, value in (("start", op.start), ("size", op.size)):
        element = element_of(value)
        need(element == i32, f"the {name} is {element}, not i32")
    start, size = constant_number(op.start), constant_number(op.size)
    if start is not None:
        need(start >= 0, f"the start {start} is negative")
    if size is not None:
        need(size > 0, f"the size {size} is not positive")
        if start is not None:
            need(start + size <= rank, f"sizes {start} to {start + size} are not within {rank}")
        return _shape_result(op, int(size))
    return [(None, None)]


@shaped(t.DimOp)
def _dim(op: t.DimOp) -> Sequence[Expected]:
    shape, axis = shape_of(op.input), op.axis.value.data
    need(axis >= 0, f"axis {axis} is negative")
    need(shape is None or axis < len(shape), f"axis {axis} is beyond rank {len(shape or ())}")
    return _shape_result(op, 1)


@shaped(t.AssertEqualShapeOp)
def _assert_equal(op: t.AssertEqualShapeOp) -> Sequence[Expected]:
    a, b = shape_value(op.input1), shape_value(op.input2)
    sizes_of(op.input1, "the first operand")
    sizes_of(op.input2, "the second operand", op.input1.type.rank.data)  # pyright: ignore
    if a is not None and b is not None:
        loose = bool(op.allow_broadcast.value.data)
        for first, second in zip(a, b, strict=True):
            equal = first == second or (loose and 1 in (first, second))
            need(equal, f"shapes {list(a)} and {list(b)} are not equal")
    return []
