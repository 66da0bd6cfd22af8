"""Elementwise operators: add, mul, div, min, max, table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.arithmetic import add_parameters
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    activation_problems,
    int8_problems,
    multiplier_problems,
    operator,
    per_tensor,
    product_multiplier,
    result_problems,
    same_quantization_problems,
    zero_point_problems,
)
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import i16
from stepwell.ir.types import Dim, dims


def is_channel_broadcast(small: Sequence[Dim], large: Sequence[Dim]) -> bool:
    """Whether the library broadcasts `small` along the channels of `large` in an addition or
    product.

    The library iterates over dimension 1 of a channels-last tensor, so both tensors must be
    logically NCHW in NHWC memory; `cmsis.relabel` is that view of an NHWC tensor.
    """
    return (
        len(small) == len(large) == 4
        and small[1] == large[1]
        and all(small[axis] == 1 for axis in (0, 2, 3))
    )


class _Binary(CmsisOp):
    """The base class of operators on two tensors of the same shape."""

    FAMILY: ClassVar[Family | None] = "elementwise"
    self_ = operand_def(TensorType)
    other = operand_def(TensorType)

    @property
    def pair(self) -> tuple[SSAValue, SSAValue]:
        """Return both operands."""
        return self.self_, self.other

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)


class _Arithmetic(_Binary):
    """The base class of binary operators that rescale; each tensor has its own zero point."""

    self_zero_point = prop_def(IntegerAttr)
    other_zero_point = prop_def(IntegerAttr)
    output_zero_point = prop_def(IntegerAttr)

    def zero_point_problems(self) -> Iterator[str]:
        """Yield where a zero point field contradicts the type of its tensor."""
        yield from zero_point_problems(
            self,
            self_zero_point=(self.self_, 1),
            other_zero_point=(self.other, 1),
            output_zero_point=(self.out, 1),
        )


def _same_shape_problems(op: _Binary) -> Iterator[str]:
    first, second = (dims(value.type) for value in op.pair)
    if first == second or is_channel_broadcast(second, first):
        yield from result_problems(op, first)
    elif is_channel_broadcast(first, second):
        yield from result_problems(op, second)
    else:
        yield f"shapes {list(first)} and {list(second)}: the kernel does not broadcast"


@operator
class QuantizedAdd(_Arithmetic):
    """Elementwise sum by the kernel `arm_elementwise_add_s8`; a negative multiplier subtracts."""

    name = "cmsis.quantized_add"
    self_multiplier = prop_def(IntegerAttr)
    self_shift = prop_def(IntegerAttr)
    other_multiplier = prop_def(IntegerAttr)
    other_shift = prop_def(IntegerAttr)
    output_multiplier = prop_def(IntegerAttr)
    output_shift = prop_def(IntegerAttr)
    activation_min = prop_def(IntegerAttr)
    activation_max = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "self_", "other", "out")
        yield from _same_shape_problems(self)
        yield from activation_problems(self)
        yield from self.zero_point_problems()
        for stem in ("self", "other", "output"):
            yield from multiplier_problems(stem, self.multiplier(stem), None)
        a, b, out = per_tensor(self.self_), per_tensor(self.other), per_tensor(self.out)
        if a is not None and b is not None and out is not None:
            yield from _add_scale_problems(self, a.scale, b.scale, out.scale)


def _add_scale_problems(op: QuantizedAdd, a: float, b: float, out: float) -> Iterator[str]:
    """Check that the multipliers add the operands' scales with integer coefficients ±k."""
    ratio = (
        op.multiplier("other").real / op.multiplier("self").real
        if op.multiplier("self").multiplier
        else 0.0
    )
    coefficient = round(ratio * a / b)
    if coefficient == 0:
        yield "the multipliers do not follow from the scales of the types"
        return
    wanted = add_parameters(a, b, out, coefficient)
    for stem, expected in (
        ("self", wanted.first),
        ("other", wanted.second),
        ("output", wanted.output),
    ):
        yield from multiplier_problems(stem, op.multiplier(stem), expected)


@operator
class QuantizedMul(_Arithmetic):
    """Elementwise product by the kernel `arm_elementwise_mul_s8`."""

    name = "cmsis.quantized_mul"
    output_multiplier = prop_def(IntegerAttr)
    output_shift = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "self_", "other", "out")
        yield from _same_shape_problems(self)
        yield from self.zero_point_problems()
        wanted = product_multiplier(self.self_, self.other, self.out)
        yield from multiplier_problems("output", self.multiplier("output"), wanted)


@operator
class QuantizedDiv(_Arithmetic):
    """Division in float32 of int8 or int16 operands."""

    name = "cmsis.quantized_div"
    output_scale = prop_def(FloatAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "self_", "other", "out", also=(i16,))
        first, second = (dims(value.type) for value in (self.self_, self.other))
        if first != second:
            yield f"shapes {list(first)} and {list(second)}: the kernel does not broadcast"
        yield from result_problems(self, first)
        yield from self.zero_point_problems()
        a, b, out = per_tensor(self.self_), per_tensor(self.other), per_tensor(self.out)
        if a is not None and b is not None and out is not None:
            wanted = a.scale / (b.scale * out.scale)
            if self.real("output_scale") != wanted:
                yield f"output_scale is {self.real('output_scale')}, the types imply {wanted}"


@operator
class QuantizedActivation(CmsisOp):
    """A function given as a 256-entry table: out = lut[x + 128]."""

    name = "cmsis.quantized_activation"
    FAMILY: ClassVar[Family | None] = "elementwise"
    input = operand_def(TensorType)
    lut = operand_def(TensorType)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "lut", "out")
        if dims(self.lut.type) != (256,):
            yield f"the table is {self.lut.type}; it has 256 entries"
        yield from result_problems(self, dims(self.input.type))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self, 1)


class _Select(_Binary):
    """The base class of Minimum and Maximum, whose operands broadcast, up to rank 4."""

    RESIZES: ClassVar[bool] = True

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "self_", "other", "out")
        yield from same_quantization_problems(self, "self_", "other")
        first, second = (list(dims(value.type)) for value in self.pair)
        rank = max(len(first), len(second))
        if rank > 4:
            yield f"rank {rank}; the kernel supports at most 4"
        shape: list[Dim] = []
        padded = ([1] * (rank - len(side)) + side for side in (first, second))
        for a, b in zip(*padded, strict=True):
            if a != b and a != 1 and b != 1:
                yield f"shapes {first} and {second} do not broadcast"
            shape.append(b if a == 1 else a)
        yield from result_problems(self, shape)


@operator
class Minimum(_Select):
    """Elementwise minimum by the kernel `arm_minimum_s8`."""

    name = "cmsis.minimum"
    IGNORES_DIM_ORDER: ClassVar[bool] = True


@operator
class Maximum(_Select):
    """Elementwise maximum by the kernel `arm_maximum_s8`."""

    name = "cmsis.maximum"
    IGNORES_DIM_ORDER: ClassVar[bool] = True


@interprets(QuantizedAdd)
def _add(op: QuantizedAdd, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.elementwise_add_s8(
            args[0],
            args[1],
            a_offset=-op.number("self_zero_point"),
            a_multiplier=op.number("self_multiplier"),
            a_shift=op.number("self_shift"),
            b_offset=-op.number("other_zero_point"),
            b_multiplier=op.number("other_multiplier"),
            b_shift=op.number("other_shift"),
            output_offset=op.number("output_zero_point"),
            output_multiplier=op.number("output_multiplier"),
            output_shift=op.number("output_shift"),
            activation=op.activation,
        ),
    )


@interprets(QuantizedMul)
def _mul(op: QuantizedMul, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.elementwise_mul_s8(
            args[0],
            args[1],
            a_offset=-op.number("self_zero_point"),
            b_offset=-op.number("other_zero_point"),
            output_offset=op.number("output_zero_point"),
            output_multiplier=op.number("output_multiplier"),
            output_shift=op.number("output_shift"),
        ),
    )


@interprets(QuantizedDiv)
def _div(op: QuantizedDiv, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.elementwise_div(
            args[0],
            args[1],
            a_zero_point=op.number("self_zero_point"),
            b_zero_point=op.number("other_zero_point"),
            output_zero_point=op.number("output_zero_point"),
            output_scale=op.real("output_scale"),
        ),
    )


@interprets(QuantizedActivation)
def _table(op: QuantizedActivation, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (kernels.activation_table_s8(args[0], args[1]),)


@interprets(Minimum)
def _minimum(op: Minimum, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].minimum(args[1]),)


@interprets(Maximum)
def _maximum(op: Maximum, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].maximum(args[1]),)
