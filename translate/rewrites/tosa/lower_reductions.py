"""Reductions, softmax, pooling and the norms that stay whole.

Before:
    %y = aten._softmax.default(%x, 1, false) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = tosa.reduce_max %x {axis = 1 : i32} : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %1 = tosa.sub %x, %0 : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %2 = tosa.exp %1 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = tosa.reduce_sum %2 {axis = 1 : i32} : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %4 = tosa.reciprocal %3 : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %y = tosa.mul %2, %4, dense<0> : (tensor<2x4xf32>, tensor<2x1xf32>, tensor<1xi8>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.limits import Level
from stepwell.ir.dtypes import i8, i16, i32, i64, torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.size import Dim, settled
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import (
    FLOATS,
    Builder,
    accumulator,
    elements,
    i64s,
    narrow,
    shape_of,
)
from stepwell.translate.rewrites.tosa.convolving import TO_NCHW, TO_NHWC, evened
from stepwell.translate.rewrites.tosa.lower_cast import cannot_be_converted, converted
from stepwell.translate.rewrites.tosa.lowering import (
    LowerToTosa,
    needs_floats,
    needs_known,
    reduced_axes,
)
from stepwell.translate.rewrites.tosa.rows import gathered
from stepwell.translate.rewrites.tosa.sizes import is_known

_REDUCTIONS: dict[type[Operation], type[TosaOp]] = {
    aten.MeanDim: t.ReduceSumOp,
    aten.SumDimIntList: t.ReduceSumOp,
    aten.AmaxDefault: t.ReduceMaxOp,
    aten.AminDefault: t.ReduceMinOp,
}

_OF_INTEGERS = (aten.SumDimIntList, aten.SumDefault, aten.AmaxDefault, aten.AminDefault)
"""What TOSA also reduces of integers; torch adds them in 64 bits."""

_OF_NUMBERS = (aten.SumDefault, aten.MeanDefault)
"""Left over where there is no axis: of rank 0."""


@dataclass(frozen=True)
class LowerReduction(LowerToTosa):
    """`mean`, `sum`, `amax`, `amin` to one REDUCE an axis; the mean of an image to AVG_POOL2D."""

    name: ClassVar[str] = "lower-reduction-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*_REDUCTIONS, *_OF_NUMBERS)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, and integers but for a mean, which needs to know over how many; kept axes or not."""
        if isinstance(op, _OF_NUMBERS) and shape_of(op.operands[0]):
            return Refusal("its axes are not listed; normalise-reduction lists them")
        if isinstance(op, aten.MeanDim):
            return needs_floats(op)
        if isinstance(op, _OF_INTEGERS) and element(op.results[0].type) in (i32, i64):
            held = element(op.operands[0].type)
            return None if held in FLOATS else cannot_be_converted(held)
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The reductions, then a product for the mean, then a reshape if axes go."""
        x = converted(op.operands[0], element(op.results[0].type), b)
        shape = shape_of(x)
        if isinstance(op, _OF_NUMBERS):  # REDUCE_SUM makes 0.0 of -0.0, as torch does
            return b.reshape(b.reduce(t.ReduceSumOp, b.reshape(x, (1,)), 0), ())
        axes = reduced_axes(op)
        if is_image_mean(op, b.level):
            y = _pool(x, t.AvgPool2dOp, shape[2:], (1, 1), (0, 0, 0, 0), (1, 1), b)
            return b.reshape(y, shape_of(op.results[0]))
        y = x
        for axis in axes:
            y = b.reduce(_REDUCTIONS[type(op)], y, axis)
        if isinstance(op, aten.MeanDim):
            y = _shared(y, [shape[axis] for axis in axes], b)
        return b.reshape(y, shape_of(op.results[0]))


def _shared(total: SSAValue, sizes: Sequence[Dim], b: Builder) -> SSAValue:
    """A sum over axes of these sizes, divided by their product.

    No operator makes a number of a shape: a size of run time is the sum of as many ones, in f32
    exact up to 2²⁴.
    """
    known = elements([size for size in sizes if isinstance(size, int)])
    held, counts = element(total.type), [size for size in sizes if not isinstance(size, int)]
    if not counts:
        return b.scalar(t.MulOp, total, 1.0 / known)
    count: SSAValue | None = None
    for size in counts:
        ones = b.op(t.TileOp, [b.number(1.0, 1, held), b.sizes((size,))], (size,), held)
        one = b.reduce(t.ReduceSumOp, ones, 0)
        count = one if count is None else b.binary(t.MulOp, count, one)
    assert count is not None
    if known != 1:
        count = b.scalar(t.MulOp, count, float(known))
    return b.binary(t.MulOp, total, b.unary(t.ReciprocalOp, count))


def is_image_mean(op: SchemaOp, level: Level) -> bool:
    """Whether an op is a mean over the whole plane of an NCHW image that a level's pools hold."""
    shape = shape_of(op.operands[0])
    if not isinstance(op, aten.MeanDim) or len(shape) != 4 or reduced_axes(op) != [2, 3]:
        return False
    return is_known(shape[2:]) and max(shape[2:]) <= level.kernel


def softmax(x: SSAValue, axis: int, b: Builder) -> SSAValue:
    """exp(x - max) · 1/Σ."""
    shifted = b.binary(t.SubOp, x, b.reduce(t.ReduceMaxOp, x, axis))
    powers = b.unary(t.ExpOp, shifted)
    total = b.unary(t.ReciprocalOp, b.reduce(t.ReduceSumOp, powers, axis))
    return b.binary(t.MulOp, powers, total)


@dataclass(frozen=True)
class LowerSoftmax(LowerToTosa):
    """`_softmax` and `_log_softmax`."""

    name: ClassVar[str] = "lower-softmax-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._SoftmaxDefault, aten._LogSoftmaxDefault)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats only."""
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Six operators; the logarithm subtracts that of the sum."""
        x = op.operands[0]
        axis = op.arg("dim") % max(len(shape_of(x)), 1)
        if isinstance(op, aten._SoftmaxDefault):
            return softmax(x, axis, b)
        shifted = b.binary(t.SubOp, x, b.reduce(t.ReduceMaxOp, x, axis))
        total = b.reduce(t.ReduceSumOp, b.unary(t.ExpOp, shifted), axis)
        return b.binary(t.SubOp, shifted, b.unary(t.LogOp, total))


def _pool(
    x: SSAValue,
    cls: type[TosaOp],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    size: Sequence[Dim],
    b: Builder,
) -> SSAValue:
    """A pool of an NCHW image, in NHWC."""
    image = b.transpose(x, TO_NHWC)
    held = element(x.type)
    n, _, _, channels = shape_of(image)
    lists = {"kernel": i64s(kernel), "stride": i64s(stride), "pad": i64s(pad)}
    shape = (n, *size, channels)
    if cls is t.MaxPool2dOp:
        y = b.op(cls, [image], shape, held, **lists)
    else:
        zeros = [b.zero(held), b.zero(held)]
        y = b.op(cls, [image, *zeros], shape, held, acc_type=accumulator(held), **lists)
    return b.transpose(y, TO_NCHW)


@dataclass(frozen=True)
class LowerPooling(LowerToTosa):
    """`max_pool2d` and `avg_pool2d`, in NHWC."""

    name: ClassVar[str] = "lower-pooling-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MaxPool2dDefault, aten.AvgPool2dDefault)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Windows that TOSA's pools have, after a pad or a cut of the image; maxima of bytes too."""
        refusal = not_pooled(op)
        if refusal is not None:
            return refusal
        is_maximum = isinstance(op, aten.MaxPool2dDefault)
        if is_dilated(op):
            refusal = needs_known(op.operands[0], (2, 3), "dilated windows of a plane of size")
            if refusal is not None:
                return refusal
        if is_maximum and is_dilated(op) and window_places(op) is None:
            return Refusal("a dilated window lies in the padding alone")
        is_short = element(op.operands[0].type) in (i8, i16)
        return None if is_maximum and is_short else needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One pool between transposes, after what TOSA's pools cannot do themselves."""
        cls = t.MaxPool2dOp if isinstance(op, aten.MaxPool2dDefault) else t.AvgPool2dOp
        if is_dilated(op):
            return _dilated(op, b)
        stride = _pair(op.arg("stride") or op.arg("kernel_size"))
        size = shape_of(op.results[0])[2:]
        kernel, pad, image = _pair(op.arg("kernel_size")), list(_padding(op)), op.operands[0]
        if counts_padding(op):
            held, before = shape_of(image), _pair(op.arg("padding"))
            shape = (*held[:2], *(held[i + 2] + 2 * before[i] for i in range(2)))
            pads = b.sizes([0] * 4 + [before[0]] * 2 + [before[1]] * 2)
            kind = element(image.type)
            image = b.op(t.PadOp, [image, pads, b.zero(kind)], shape, kind)
            pad = [0, settled(pad[1] - before[0]), 0, settled(pad[3] - before[1])]
        if not is_known(pad):
            return _padded_pool(op, image, pad, b)
        for axis, behind in ((2, pad[1]), (3, pad[3])):
            if behind < 0:
                image = narrow(image, axis, 0, shape_of(image)[axis] + behind, b)
        pad = [max(one, 0) for one in pad]
        return _pool(image, cls, kernel, stride, pad, size, b)


def _pair(values: Sequence[int]) -> list[int]:
    return list(values) * 2 if len(values) == 1 else list(values)


def _padded_pool(op: SchemaOp, image: SSAValue, pad: Sequence[Any], b: Builder) -> SSAValue:
    """A pool of an image whose size decides its padding: that is written out."""
    is_maximum = isinstance(op, aten.MaxPool2dDefault)
    kernel, before = _pair(op.arg("kernel_size")), _pair(op.arg("padding"))
    stride = _pair(op.arg("stride") or kernel)
    more = [step - 1 if op.arg("ceil_mode") else 0 for step in stride]
    most = [sum(pair) if is_maximum else 0 for pair in zip(before, more, strict=True)]
    held = torch_dtype(element(image.type))
    least = -inf if held.is_floating_point else torch.iinfo(held).min
    image = b.transpose(image, TO_NHWC)
    image, left = evened(image, (pad[1], pad[3]), most, b, least)
    image = b.transpose(image, TO_NCHW)
    size = shape_of(op.results[0])[2:]
    cls = t.MaxPool2dOp if is_maximum else t.AvgPool2dOp
    return _pool(image, cls, kernel, stride, (pad[0], left[0], pad[2], left[1]), size, b)


def _padding(op: SchemaOp) -> tuple[Any, Any, Any, Any]:
    """Top, bottom, left, right; those behind make the windows come out even."""
    kernel, before = _pair(op.arg("kernel_size")), _pair(op.arg("padding"))
    stride = _pair(op.arg("stride") or op.arg("kernel_size"))
    held, size = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    behind = [(size[i] - 1) * stride[i] + kernel[i] - held[i] - before[i] for i in range(2)]
    behind = [settled(one) for one in behind]
    return before[0], behind[0], before[1], behind[1]


Window = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Kernel, stride, and pad as top, bottom, left, right."""


def counts_padding(op: SchemaOp) -> bool:
    """Whether the zeros around an image count in its averages, as TOSA's never do."""
    is_average = isinstance(op, aten.AvgPool2dDefault)
    return is_average and op.arg("count_include_pad") and any(_pair(op.arg("padding")))


def is_dilated(op: SchemaOp) -> bool:
    """Whether the cells of a pool's windows stand apart."""
    is_maximum = isinstance(op, aten.MaxPool2dDefault)
    return is_maximum and any(d != 1 for d in _pair(op.arg("dilation")))


def window_places(op: SchemaOp) -> tuple[list[int], list[int]] | None:
    """The rows, and the columns, that the windows of a pool read, window after window.

    Padding, which is never a maximum, is another cell of its window. None if a window has no other.
    """
    held, made = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    lists = (op.arg(name) for name in ("kernel_size", "stride", "padding", "dilation"))
    kernel, stride, padding, dilation = (_pair(values or op.arg("kernel_size")) for values in lists)
    found: tuple[list[int], list[int]] = ([], [])
    for axis, places in enumerate(found):
        for window in range(made[axis]):
            first = window * stride[axis] - padding[axis]
            cells = [first + i * dilation[axis] for i in range(kernel[axis])]
            inside = [cell for cell in cells if 0 <= cell < held[axis]]
            if not inside:
                return None
            places += [cell if cell in inside else inside[0] for cell in cells]
    return found


def _dilated(op: SchemaOp, b: Builder) -> SSAValue:
    """The cells of each window brought together, then a pool whose windows stand side by side."""
    places = window_places(op)
    assert places is not None, "refused otherwise"
    image = b.transpose(op.operands[0], TO_NHWC)
    for axis, indices in enumerate(places, 1):
        image = gathered(image, axis, indices, b)
    kernel, size = _pair(op.arg("kernel_size")), shape_of(op.results[0])[2:]
    image = b.transpose(image, TO_NCHW)
    return _pool(image, t.MaxPool2dOp, kernel, kernel, (0, 0, 0, 0), size, b)


def not_pooled(op: SchemaOp) -> Refusal | None:
    """Why TOSA has no such pool, whatever is padded and cut off before."""
    if len(shape_of(op.operands[0])) != 4:
        return Refusal("the input is not a batch of images")
    if isinstance(op, aten.AvgPool2dDefault) and op.arg("divisor_override") is not None:
        return Refusal("divisor_override is set; AVG_POOL2D divides by the number of elements")
    behind = _padding(op)[1::2]
    if is_known(behind):
        return None
    if isinstance(op, aten.AvgPool2dDefault):
        is_even = counts_padding(op) or not any(_pair(op.arg("padding")))
        if op.arg("ceil_mode") or not is_even:
            return Refusal("a symbolic size decides which elements of a window count")
    return None


def pool_window(op: SchemaOp) -> Window | Refusal:
    """The window of a pool that TOSA's pools have as it is, or why they have not."""
    refusal = not_pooled(op)
    if refusal is not None:
        return refusal
    if counts_padding(op):
        return Refusal("the padding counts; AVG_POOL2D does not count it")
    if is_dilated(op):
        return Refusal("dilation is not 1; MAX_POOL2D has none")
    kernel, pad = _pair(op.arg("kernel_size")), _padding(op)
    if not is_known(pad):
        return Refusal("the padding behind hangs on a symbolic size")
    if min(pad) < 0:
        return Refusal("rows or columns at the end belong to no window")
    return kernel, _pair(op.arg("stride") or op.arg("kernel_size")), pad
