"""The result types of every node.

Shapes follow from operands and fields. Results have the operand's float element type. The op states
the parameters of a quantized result, because they are a choice. A size that is computed from a
symbolic one (a window, a concatenation) is also the one that the op states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from xdsl.ir import Attribute, Operation

from stepwell.dialects.xnnpack.base import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import element_datatype
from stepwell.dialects.xnnpack.elementwise import Binary, Convert, Unary
from stepwell.dialects.xnnpack.matmul import (
    BatchMatrixMultiply,
    FullyConnected,
    ScaledDotProductAttention,
)
from stepwell.dialects.xnnpack.movement import (
    CONCATENATES,
    StaticConstantPad,
    StaticReshape,
    StaticSlice,
    StaticTranspose,
)
from stepwell.dialects.xnnpack.spatial import (
    ArgMaxPooling2d,
    AveragePooling2d,
    Convolution2d,
    Deconvolution2d,
    DepthwiseConvolution2d,
    GlobalAveragePooling2d,
    MaxPooling2d,
    StaticResizeBilinear2d,
)
from stepwell.ir.declared.inference import infers
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i32, i64
from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import AnyTensor, Dim, dims, element, tensor

Shape = tuple[Dim, ...]


def _shape(op: Operation, index: int) -> Shape:
    return dims(op.operands[index].type)


def _element(op: Operation) -> Attribute:
    """Return the first operand's element type if it is a float, else the one that the op states."""
    operand_element = element(op.operands[0].type)
    plain = element_datatype(operand_element) in ("fp32", "fp16")
    return operand_element if plain else element(op.results[0].type)


def _stated(op: Operation, shape: Sequence[Dim | None], index: int = 0) -> Shape:
    """Return the shape with the op's stated sizes in place of those that cannot be computed."""
    stated = dims(op.results[index].type)
    if len(stated) != len(shape):
        stated = (UNKNOWN,) * len(shape)
    return tuple(
        stated_size if size is None else size
        for size, stated_size in zip(shape, stated, strict=True)
    )


def _made(op: Operation, shape: Sequence[Dim | None]) -> Sequence[AnyTensor]:
    return (tensor(_stated(op, shape), _element(op)),)


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape to which two shapes are broadcast.

    Raises:
        StepwellError: a size differs and neither is 1.
    """
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    result: list[Dim] = list(longer)
    offset = len(longer) - len(shorter)
    for axis, size in enumerate(shorter, offset):
        if size == result[axis] or size == 1:
            continue
        if result[axis] != 1:
            raise StepwellError(
                f"shapes {list(left)} and {list(right)} do not broadcast: "
                f"{result[axis]} against {size}"
            )
        result[axis] = size
    return tuple(result)


def _equal(one: Dim, other: Dim, what: str) -> None:
    if one != other:
        raise StepwellError(f"{what}: {one} against {other}")


@infers(Unary)
def _unary(op: Operation) -> Sequence[Attribute]:
    return _made(op, _shape(op, 0))


@infers(Convert)
def _convert(op: Operation) -> Sequence[Attribute]:
    return (tensor(_shape(op, 0), element(op.results[0].type)),)


@infers(Binary)
def _binary(op: Operation) -> Sequence[Attribute]:
    return _made(op, broadcast(_shape(op, 0), _shape(op, 1)))


@infers(FullyConnected)
def _fully_connected(op: Operation) -> Sequence[Attribute]:
    shape, weight = _shape(op, 0), _shape(op, 1)
    if len(weight) != 2 or not shape:
        raise StepwellError("the filter must have two dimensions, and the input at least one")
    outputs, inputs = weight
    if cast(XnnpackOp, op).flag("transpose_weights"):
        outputs, inputs = inputs, outputs
    _equal(shape[-1], inputs, "the input's last size and the filter's inputs differ")
    stated = element(op.results[0].type)
    is_float = element_datatype(stated) in ("fp32", "fp16")
    operand_element = element(op.operands[0].type)
    keeps = element_datatype(operand_element) in ("fp32", "fp16")
    return (tensor((*shape[:-1], outputs), operand_element if keeps and is_float else stated),)


@infers(BatchMatrixMultiply)
def _batch_matrix_multiply(op: Operation) -> Sequence[Attribute]:
    left, right = _shape(op, 0), _shape(op, 1)
    if min(len(left), len(right)) < 2:
        raise StepwellError("both operands need at least two dimensions")
    inner, outer = right[-2:]
    if cast(XnnpackOp, op).flag("transpose_b"):
        inner, outer = outer, inner
    _equal(left[-1], inner, "the sizes summed over differ")
    return _made(op, (*broadcast(left[:-2], right[:-2]), left[-2], outer))


@infers(ScaledDotProductAttention)
def _attention(op: Operation) -> Sequence[Attribute]:
    query, key, value = _shape(op, 0), _shape(op, 1), _shape(op, 2)
    _equal(query[-1], key[-1], "query and key channels differ")
    _equal(key[-2], value[-2], "key and value tokens differ")
    return _made(op, (*query[:-1], value[-1]))


def _window_size(
    size: Dim, before: int, after: int, window: int, stride: int, dilation: int
) -> int | None:
    """Count the windows that fit; None if unknown."""
    if isinstance(size, Size):
        return None
    extent = (window - 1) * dilation + 1
    count = (size + before + after - extent) // stride + 1
    if size + before + after < extent:
        raise StepwellError(f"a window of {extent} does not fit {size} with its padding")
    return count


Windowed = (
    Convolution2d | DepthwiseConvolution2d | MaxPooling2d | AveragePooling2d | ArgMaxPooling2d
)


def _windows(op: Windowed, stride: tuple[int, int]) -> tuple[int | None, int | None]:
    _, height, width, _ = _image(op)
    top, right, bottom, left = op.paddings
    window, dilation = op.window, op.pair("dilation")
    return (
        _window_size(height, top, bottom, window[0], stride[0], dilation[0]),
        _window_size(width, left, right, window[1], stride[1], dilation[1]),
    )


def _image(op: Operation) -> Shape:
    shape = _shape(op, 0)
    if len(shape) != 4:
        raise StepwellError(f"an image has four dimensions (NHWC), not {len(shape)}")
    return shape


@infers(Convolution2d, DepthwiseConvolution2d)
def _convolution(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, Convolution2d | DepthwiseConvolution2d)
    batch = _image(op)[0]
    outputs = op.filter_shape[op.CHANNEL_AXIS]
    return _made(op, (batch, *_windows(op, op.pair("stride")), outputs))


@infers(Deconvolution2d)
def _deconvolution(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, Deconvolution2d)
    batch, height, width, _ = _image(op)
    top, right, bottom, left = op.paddings
    stride, dilation = op.pair("stride"), op.pair("dilation")
    adjustment = op.pair("adjustment", 0)
    sizes: list[Dim | None] = []
    for axis, (size, padding) in enumerate(((height, top + bottom), (width, left + right))):
        if isinstance(size, Size):
            sizes.append(None)
            continue
        extent = (op.window[axis] - 1) * dilation[axis] + 1
        made = stride[axis] * (size - 1) + adjustment[axis] + extent - padding
        if made < 1:
            raise StepwellError(f"the padding of {padding} removes all of axis {axis + 1}")
        sizes.append(made)
    return _made(op, (batch, *sizes, op.filter_shape[0]))


@infers(MaxPooling2d, AveragePooling2d)
def _pooling(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, MaxPooling2d | AveragePooling2d)
    batch, _, _, channels = _image(op)
    return _made(op, (batch, *_windows(op, op.pair("stride")), channels))


@infers(ArgMaxPooling2d)
def _argmax_pooling(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, ArgMaxPooling2d)
    batch, _, _, channels = _image(op)
    shape = _stated(op, (batch, *_windows(op, op.window), channels))
    stated = element(op.results[1].type)
    return tensor(shape, _element(op)), tensor(shape, stated if stated == i64 else i32)


@infers(GlobalAveragePooling2d)
def _global_average_pooling(op: Operation) -> Sequence[Attribute]:
    shape = _shape(op, 0)
    if len(shape) < 3:
        raise StepwellError("an image has at least three dimensions")
    kept: Shape = (1, 1) if cast(XnnpackOp, op).flag("keep_dims") else ()
    return _made(op, (*shape[:-3], *kept, shape[-1]))


@infers(StaticResizeBilinear2d)
def _resize(op: Operation) -> Sequence[Attribute]:
    batch, _, _, channels = _image(op)
    return _made(op, (batch, *cast(XnnpackOp, op).ints("new_size"), channels))


@infers(StaticReshape)
def _reshape(op: Operation) -> Sequence[Attribute]:
    shape, wanted = _shape(op, 0), cast(XnnpackOp, op).ints("new_shape")
    if all(isinstance(size, int) for size in shape):
        count = math.prod(cast(tuple[int, ...], shape))
        rest = math.prod(size for size in wanted if size)
        if count % rest or (0 not in wanted and count != rest):
            raise StepwellError(f"{list(shape)} has {count} elements, {list(wanted)} has {rest}")
        return _made(op, [size or count // rest for size in wanted])
    return _made(op, [size or None for size in wanted])


@infers(StaticTranspose)
def _transpose(op: Operation) -> Sequence[Attribute]:
    shape, perm = _shape(op, 0), cast(XnnpackOp, op).ints("perm")
    if sorted(perm) != list(range(len(shape))):
        raise StepwellError(f"{list(perm)} is not a permutation of {len(shape)} axes")
    return _made(op, [shape[axis] for axis in perm])


@infers(StaticSlice)
def _slice(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, StaticSlice)
    shape, offsets, sizes = _shape(op, 0), op.ints("offsets"), op.ints("sizes")
    if not len(shape) == len(offsets) == len(sizes):
        raise StepwellError("offsets and sizes must have a number for each dimension")
    result: list[Dim | None] = []
    for dim, offset, size in zip(shape, offsets, sizes, strict=True):
        result.append(size or settled(Size.of(dim) - offset))
    return _made(op, result)


@infers(StaticConstantPad)
def _pad(op: Operation) -> Sequence[Attribute]:
    assert isinstance(op, StaticConstantPad)
    shape, before, after = _shape(op, 0), op.ints("pre_paddings"), op.ints("post_paddings")
    if not len(shape) == len(before) == len(after):
        raise StepwellError("paddings must have a number for each dimension")
    result: list[Dim | None] = []
    for dim, first, last in zip(shape, before, after, strict=True):
        added = first + last
        result.append(dim + added if added else dim)
    return _made(op, result)


@infers(*CONCATENATES.values())
def _concatenate(op: Operation) -> Sequence[Attribute]:
    axis = cast(XnnpackOp, op).integer("axis", 0)
    first = _shape(op, 0)
    total: Dim = 0
    for index in range(len(op.operands)):
        shape = _shape(op, index)
        others = (first[:axis] + first[axis + 1 :], shape[:axis] + shape[axis + 1 :])
        if len(shape) <= axis or others[0] != others[1]:
            fact = f"shapes {list(first)} and {list(shape)} do not concatenate along axis {axis}"
            raise StepwellError(fact)
        total = total + shape[axis]
    return _made(op, (*first[:axis], total, *first[axis + 1 :]))
