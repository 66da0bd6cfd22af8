"""Shape rules of convolutions, pooling and matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import f8e4m3, f8e5m2, i4, i48
from stepwell.dialects.tosa.meaning.values import element_of
from stepwell.dialects.tosa.shapes.rules import (
    Expected,
    listed,
    need,
    ranked,
    same,
    shaped,
    sizes_of,
)
from stepwell.dialects.tosa.shapes.zero_points import need_zero_point
from stepwell.ir.dtypes import bf16, f16, f32, i8, i16, i32
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import Dim


def output_size(dim: Dim, kernel: Dim, pad: int, stride: int, dilation: int) -> Dim:
    """Return the number of positions of a window, which must divide evenly."""
    need(stride >= 1, f"stride {stride} is not positive")
    need(dilation >= 1, f"dilation {dilation} is not positive")
    if isinstance(dim, Size) or isinstance(kernel, Size):
        return UNKNOWN
    span = dim - 1 + pad - (kernel - 1) * dilation
    need(span >= 0, "the kernel is larger than the image")
    need(span % stride == 0, "the stride does not reach the last element exactly")
    return span // stride + 1


_ACCUMULATORS: dict[Attribute, tuple[Attribute, ...]] = {
    i8: (i32,),
    i16: (i48,),
    f16: (f16, f32),
    bf16: (f32,),
    f32: (f32,),
    f8e4m3: (f16, f32),
    f8e5m2: (f16, f32),
}
"""Sums of products by the (left) operand's element type; averages of i16 have i32."""

_WEIGHTS: dict[Attribute, tuple[Attribute, ...]] = {
    i8: (i8, i4),
    i16: (i8,),
    f8e4m3: (f8e4m3, f8e5m2),
    f8e5m2: (f8e4m3, f8e5m2),
}
"""Weights by the image's element type, if different; CONV2D mixes all floats."""


def _accumulates(op: TosaOp, allowed: Sequence[Attribute] | None) -> None:
    element = element_of(op.operands[0])
    need(allowed is not None, "{} has no form on {}", op.name, element)
    accumulator = op.properties["acc_type"]
    fits = allowed is not None and accumulator in allowed
    need(fits, "{} is not an accumulator for {}", accumulator, element)


def _zero_points(op: TosaOp) -> None:
    image, weight = element_of(op.operands[0]), element_of(op.operands[1])
    mixes = isinstance(op, t.Conv2dOp) and not isinstance(image, IntegerType)
    if not mixes and not isinstance(image, BlockScaledType):
        _accumulates(op, _ACCUMULATORS.get(image))
        taken = _WEIGHTS.get(image, (image,))
        need(weight in taken, "{} is not a weight for {}", weight, image)
    pairs = (("input", op.operands[0], op.operands[3]), ("weight", op.operands[1], op.operands[4]))
    for what, value, zero in pairs:
        element = element_of(value)
        need_zero_point(zero, f32 if isinstance(element, BlockScaledType) else element, what)


def _bias(op: TosaOp, channels: Dim) -> None:
    (size,) = ranked(op.operands[2], 1, "the bias")
    need(size == 1 or same(size, channels), f"the bias has {size} elements for {channels} channels")
    element, result = element_of(op.operands[2]), element_of(op.results[0])
    need(element == result, "the bias is {}, the result {}", element, result)


def _spatial(op: TosaOp, image: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[Dim, ...]:
    count = len(image)
    pad = listed(op.properties["pad"], 2 * count, "pad")
    stride = listed(op.properties["stride"], count, "stride")
    dilation = listed(op.properties["dilation"], count, "dilation")
    need(min(pad) >= 0, f"pad {pad} has a negative element")
    return tuple(
        output_size(image[i], kernel[i], pad[2 * i] + pad[2 * i + 1], stride[i], dilation[i])
        for i in range(count)
    )


@shaped(t.Conv2dOp, t.Conv3dOp)
def _convolution(op: t.Conv2dOp | t.Conv3dOp) -> Sequence[Expected]:
    rank = 4 if isinstance(op, t.Conv2dOp) else 5
    n, *image, channels = ranked(op.input, rank, "the input")
    out, *kernel, per = ranked(op.weight, rank, "the weight")
    need(same(channels, per), f"the input has {channels} channels, the weight {per}")
    _zero_points(op)
    _bias(op, out)
    return [((n, *_spatial(op, image, kernel), out), None)]


@shaped(t.DepthwiseConv2dOp)
def _depthwise(op: t.DepthwiseConv2dOp) -> Sequence[Expected]:
    n, *image, channels = ranked(op.input, 4, "the input")
    *kernel, per, multiplier = ranked(op.weight, 4, "the weight")
    need(same(channels, per), f"the input has {channels} channels, the weight {per}")
    both = isinstance(per, int) and isinstance(multiplier, int)
    out: Dim = per * multiplier if both else UNKNOWN  # pyright: ignore
    _zero_points(op)
    _bias(op, out)
    return [((n, *_spatial(op, image, kernel), out), None)]


@shaped(t.TransposeConv2dOp)
def _transpose_conv2d(op: t.TransposeConv2dOp) -> Sequence[Expected]:
    n, *image, channels = ranked(op.input, 4, "the input")
    out, *kernel, per = ranked(op.weight, 4, "the weight")
    need(same(channels, per), f"the input has {channels} channels, the weight {per}")
    pad = listed(op.out_pad, 4, "out_pad")
    stride = listed(op.stride, 2, "stride")
    dims: list[Dim] = []
    for i in range(2):
        need(stride[i] >= 1, f"stride {stride[i]} is not positive")
        held, size = image[i], kernel[i]
        if isinstance(held, Size) or isinstance(size, Size):
            dims.append(UNKNOWN)
            continue
        need(min(pad[2 * i : 2 * i + 2]) > -size, f"out_pad {pad} removes a kernel of {size}")
        dims.append((held - 1) * stride[i] + pad[2 * i] + pad[2 * i + 1] + size)
    _zero_points(op)
    _bias(op, out)
    return [((n, *dims, out), None)]


def _pooled(
    image: Sequence[Dim], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> tuple[Dim, ...]:
    need(min(kernel) >= 1, f"kernel {list(kernel)} is not all positive")
    need(min(pad) >= 0, f"pad {list(pad)} has a negative element")
    for i, size in enumerate(kernel):
        need(
            max(pad[2 * i : 2 * i + 2]) < size, f"pad {list(pad)} is not below the kernel of {size}"
        )
    return tuple(
        output_size(image[i], kernel[i], pad[2 * i] + pad[2 * i + 1], stride[i], 1)
        for i in range(2)
    )


@shaped(t.MaxPool2dOp, t.AvgPool2dOp)
def _pool(op: t.MaxPool2dOp | t.AvgPool2dOp) -> Sequence[Expected]:
    n, *image, channels = ranked(op.input, 4, "the input")
    lists = listed(op.kernel, 2, "kernel"), listed(op.stride, 2, "stride"), listed(op.pad, 4, "pad")
    element = element_of(op.input)
    if isinstance(op, t.AvgPool2dOp):
        _accumulates(op, (i32,) if element == i16 else _ACCUMULATORS.get(element))
        _pool_zero_points(op.input_zp, op.output_zp, element)
    return [((n, *_pooled(image, *lists), channels), element)]


@shaped(t.MaxPool2dAdaptiveOp, t.AvgPool2dAdaptiveOp)
def _adaptive_pool(op: TosaOp) -> Sequence[Expected]:
    n, *image, channels = ranked(op.operands[0], 4, "the input")
    element = element_of(op.operands[0])
    if isinstance(op, t.AvgPool2dAdaptiveOp):
        _pool_zero_points(op.input_zp, op.output_zp, element)
    names = ("kernel", 2), ("stride", 2), ("pad", 4)
    lists = [
        sizes_of(value, name, count)
        for value, (name, count) in zip(op.operands[-3:], names, strict=True)
    ]
    known = [part for part in lists if part is not None]
    if len(known) < 3:
        return [((n, UNKNOWN, UNKNOWN, channels), element)]
    return [((n, *_pooled(image, known[0], known[1], known[2]), channels), element)]


def _pool_zero_points(input_zp: SSAValue, output_zp: SSAValue, attribute: Attribute) -> None:
    need_zero_point(input_zp, attribute, "input")
    need_zero_point(output_zp, attribute, "output")


def _product(op: TosaOp, transposed: bool) -> Sequence[Expected]:
    batch, rows, depth = ranked(op.operands[0], 3, "the left operand")
    other, *rest = ranked(op.operands[1], 3, "the right operand")
    columns, inner = rest if transposed else rest[::-1]
    need(same(depth, inner), f"the contracted sizes {depth} and {inner} differ")
    fits = same(batch, other) or (transposed and other == 1)
    need(fits, f"the batches {batch} and {other} differ")
    for value, zero, what in (
        (op.operands[0], op.operands[2], "left"),
        (op.operands[1], op.operands[3], "right"),
    ):
        element = element_of(value)
        need_zero_point(zero, f32 if isinstance(element, BlockScaledType) else element, what)
    return [((batch, rows, columns), None)]


@shaped(t.MatMulOp)
def _matmul(op: t.MatMulOp) -> Sequence[Expected]:
    element, result = element_of(op.a), element_of(op.results[0])
    allowed = _ACCUMULATORS.get(element)
    need(allowed is not None, f"there is no product of {element}")
    need(result in (allowed or ()), f"a product of {element} does not give {result}")
    return _product(op, False)


@shaped(t.MatMulTOp)
def _matmul_t(op: t.MatMulTOp) -> Sequence[Expected]:
    return _product(op, True)
