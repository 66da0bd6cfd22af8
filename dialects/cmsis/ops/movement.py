"""Quantize, dequantize, transpose, pad, and relabeling of dimensions, which is free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    int8_problems,
    operator,
    per_tensor,
    result_problems,
    same_quantization_problems,
)
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.axes import forms as axis_forms
from stepwell.ir.axes.forms import elementwise, mapped
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import f32, i8, i16, torch_dtype
from stepwell.ir.types import Dim, dims, element

DTYPES = {"int8": torch.int8, "int16": torch.int16}


class _Convert(CmsisOp):
    """The base class of conversions between float32 and integers with one scale."""

    FAMILY: ClassVar[Family | None] = "cast"
    RESIZES: ClassVar[bool] = True
    input = operand_def(TensorType)
    scale = prop_def(FloatAttr)
    zero_point = prop_def(IntegerAttr)
    quant_min = prop_def(IntegerAttr)
    quant_max = prop_def(IntegerAttr)
    dtype = prop_def(StringAttr)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)

    def _check(self, integers: Any, reals: Any) -> Iterator[str]:
        yield from result_problems(self, dims(self.input.type))
        if element(reals.type) != f32:
            yield f"{reals.type} is not float32"
        integers_quantization = quantization(integers.type)
        stored = (
            element(integers.type)
            if integers_quantization is None
            else storage_element(integers_quantization)
        )
        if stored not in (i8, i16) or DTYPES.get(self.dtype.data) != torch_dtype(stored):
            yield f"dtype is {self.dtype.data}, the integers are {integers.type}"
        if integers_quantization is not None and not integers_quantization.is_per_tensor:
            yield f"{integers.type} is not quantized per tensor"
        elif integers_quantization is not None:
            stated = (
                self.real("scale"),
                self.number("zero_point"),
                self.number("quant_min"),
                self.number("quant_max"),
            )
            typed = (
                integers_quantization.scale,
                integers_quantization.zero_point,
                integers_quantization.low,
                integers_quantization.high,
            )
            if stated != typed:
                yield f"scale, zero point and range are {stated}, the type implies {typed}"


@operator
class QuantizePerTensor(_Convert):
    """Quantize float32 to int8 or int16: nearbyint(x · (1/scale)) + zero_point, clamped."""

    name = "cmsis.quantize_per_tensor"

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self._check(self.out, self.input)


@operator
class DequantizePerTensor(_Convert):
    """Dequantize int8 or int16 to float32: (x − zero_point) · scale."""

    name = "cmsis.dequantize_per_tensor"

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self._check(self.input, self.out)


def permutation_problem(permutation: Sequence[int], rank: int) -> str | None:
    """Return why a list is not a permutation of this rank, or None."""
    if sorted(permutation) != list(range(rank)):
        return f"{list(permutation)} is not a permutation of {rank} dimensions"
    return None


def permuted(shape: Sequence[Dim], permutation: Sequence[int]) -> tuple[Dim, ...]:
    """Permute the dimensions of a shape."""
    return tuple(shape[axis] for axis in permutation)


@operator
class Transpose(CmsisOp):
    """Transpose by `arm_transpose_s8`: dimension i of the result is the input's perm[i]."""

    name = "cmsis.transpose"
    IGNORES_DIM_ORDER: ClassVar[bool] = True
    FAMILY: ClassVar[Family | None] = "permutation"
    input = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "out")
        yield from same_quantization_problems(self, "input")
        shape, perm = dims(self.input.type), self.numbers("perm")
        if problem := permutation_problem(perm, len(shape)):
            yield problem
            return
        if not 1 <= len(shape) <= 4:
            yield f"rank {len(shape)}; the kernel supports 1 to 4"
        if perm == (0, 1):
            yield "the kernel transposes every matrix, but this permutation does not"
        yield from result_problems(self, permuted(shape, perm))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, axis_forms.permuted(self.numbers("perm")))


def is_taken_as_channels_last(shape: Sequence[Dim]) -> bool:
    """Whether the library treats a tensor as channels-last NCHW regardless of its dim order.

    See `is_channels_last_tensor` of `cortex_m_ops_common.h`: with one channel, or one cell, the
    strides of both layouts are equal.
    """
    return len(shape) == 4 and (shape[1] == 1 or shape[2] == shape[3] == 1)


def pad_is_misread(shape: Sequence[Dim], *widths: Sequence[int]) -> bool:
    """Whether the library would pad other cells than those of the row-major tensor.

    If the library treats the tensor as channels-last, it pads [N, H, W, C]. The result is the same
    unless the moved dimension of size 1 is padded.
    """
    if not is_taken_as_channels_last(shape):
        return False
    one_channel = shape[1] == 1 and not any(side[1] for side in widths)
    one_cell = shape[2] == shape[3] == 1 and not any(side[2] or side[3] for side in widths)
    return not (one_channel or one_cell)


@operator
class Pad(CmsisOp):
    """Pad each dimension with constant cells by `arm_pad_s8`; the lists have four entries."""

    name = "cmsis.pad"
    FAMILY: ClassVar[Family | None] = "padding"
    input = operand_def(TensorType)
    pre_pad = prop_def(DenseArrayBase)
    post_pad = prop_def(DenseArrayBase)
    pad_value = prop_def(IntegerAttr)

    def widths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the cells before and after each dimension of the tensor (without leading ones)."""
        start = 4 - len(dims(self.input.type))
        return self.numbers("pre_pad")[start:], self.numbers("post_pad")[start:]

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "out")
        yield from same_quantization_problems(self, "input")
        shape = dims(self.input.type)
        lists = self.numbers("pre_pad"), self.numbers("post_pad")
        if not 1 <= len(shape) <= 4 or any(len(widths) != 4 for widths in lists):
            yield f"rank {len(shape)} with {len(lists[0])} and {len(lists[1])} widths"
            return
        if any(width < 0 for widths in lists for width in widths):
            yield "a width is negative; the kernel does not crop"
        if any(any(widths[: 4 - len(shape)]) for widths in lists):
            yield f"widths are given for more than {len(shape)} dimensions"
        if pad_is_misread(shape, *lists):
            yield f"the kernel treats {list(shape)} as channels-last and pads other dimensions"
        tensor = per_tensor(self.out)
        low, high = (tensor.low, tensor.high) if tensor is not None else (-128, 127)
        if not low <= self.number("pad_value") <= high:
            yield f"pad_value {self.number('pad_value')} is outside {low}:{high}"
        before, after = self.widths()
        grown = [
            d + b + a if isinstance(d, int) else d
            for d, b, a in zip(shape, before, after, strict=True)
        ]
        yield from result_problems(self, grown)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, axis_forms.moved([-width for width in self.widths()[0]]))


@irdl_op_definition
class Relabel(CmsisOp):
    """The same bytes with permuted dimensions: NHWC memory as an NCHW tensor, or the reverse.

    No code runs: both tensors share their storage.
    """

    name = "cmsis.relabel"
    FAMILY: ClassVar[Family | None] = "reshape"
    input = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if element(self.input.type) != element(self.out.type):
            yield f"{self.input.type} becomes {self.out.type}; the element type must not change"
        shape, perm = dims(self.input.type), self.numbers("perm")
        if problem := permutation_problem(perm, len(shape)):
            yield problem
            return
        yield from result_problems(self, permuted(shape, perm))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, axis_forms.permuted(self.numbers("perm")))


@interprets(QuantizePerTensor)
def _quantize(op: QuantizePerTensor, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.quantize_per_tensor(
            args[0],
            scale=op.real("scale"),
            zero_point=op.number("zero_point"),
            low=op.number("quant_min"),
            high=op.number("quant_max"),
            dtype=DTYPES[op.dtype.data],
        ),
    )


@interprets(DequantizePerTensor)
def _dequantize(op: DequantizePerTensor, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.dequantize_per_tensor(
            args[0], scale=op.real("scale"), zero_point=op.number("zero_point")
        ),
    )


@interprets(Transpose)
def _transpose(op: Transpose, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (kernels.transpose_s8(args[0], op.numbers("perm")),)


@interprets(Pad)
def _pad(op: Pad, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    before, after = op.widths()
    return (kernels.pad_s8(args[0], before, after, op.number("pad_value")),)


@interprets(Relabel)
def _relabel(op: Relabel, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].permute(op.numbers("perm")),)
