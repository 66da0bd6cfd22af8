"""Divide a `convolution` of lines or images into TOSA's operators, for any element type.

A line is an image of height 1. Groups that are not depthwise are convolutions of slices, whose
channels are concatenated. Elements that no window reads are sliced off, since TOSA has no negative
padding. The part of a transposed convolution's result that cannot be removed at the begin of an
axis is sliced off after the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import weight_key
from stepwell.ir.sizes.size import Dim, settled
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrow, shape_of

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class Placed:
    """One operator of a convolution, for one group, without its bias and zero points.

    `image` is `[N, H, W, C]`, `shape` the result's; `lists` are `pad`, `stride` and `dilation`, or
    `out_pad` and `stride`.
    """

    operator: type[TosaOp]
    image: SSAValue
    kernel: SSAValue
    shape: Sequence[Dim]
    lists: Mapping[str, Sequence[int]]
    group: int = 0


Convolve = Callable[[Placed], SSAValue]
"""Builds one operator."""


@dataclass(frozen=True)
class KernelWindow:
    """The movement of a kernel over rows and columns, its taps, and the padding value."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    extra: Sequence[int]
    made: Sequence[Dim]
    fill: float

    def behind(self, held: Dim, kernel: int, axis: int) -> Dim:
        """Return the end padding with which the windows fill an axis exactly, as TOSA requires."""
        span = (kernel - 1) * self.dilation[axis] + 1
        last = (self.made[axis] - 1) * self.stride[axis]
        return settled(last + span - held - self.padding[axis])


def window_of(op: SchemaOp, *, is_line: bool, fill: float) -> KernelWindow:
    """Return the window of a `convolution` of images, or of lines."""
    stride, padding, dilation, extra = (
        list(op.arg(name)) for name in ("stride", "padding", "dilation", "output_padding")
    )
    sizes = list(shape_of(op.results[0])[2:])
    if is_line:
        stride, padding, dilation, extra = [1, *stride], [0, *padding], [1, *dilation], [0, *extra]
        sizes = [1, *sizes]
    return KernelWindow(stride, padding, dilation, extra, sizes, fill)


def slices_of(op: SchemaOp) -> int:
    """Return the number of operators of a `convolution`: one, or one for each group."""
    groups, width = op.arg("groups"), shape_of(op.operands[1])[1]
    is_depthwise = width == 1 and not op.arg("transposed")
    return 1 if is_depthwise else groups


def convolved(
    op: SchemaOp, x: SSAValue, weight: SSAValue, convolve: Convolve, b: Builder, fill: float = 0.0
) -> SSAValue:
    """Build the result of a `convolution`, `[N, C, H, W]` or `[N, C, W]`.

    Args:
        x: its image or lines, as the operators take them.
        weight: its weight in torch's order.
        convolve: builds one operator.
        fill: the padding value.
    """
    is_line = len(shape_of(x)) == 3
    if is_line:
        x, weight = (_as_image(value, b) for value in (x, weight))
    image = b.transpose(x, TO_NHWC)
    window, count = window_of(op, is_line=is_line, fill=fill), slices_of(op)
    parts: list[SSAValue] = []
    for group in range(count):
        operands = part(image, 3, group, count, b), part(weight, 0, group, count, b)
        if op.arg("transposed"):
            dense = _transposed(*operands, window, convolve, group, b)
        elif op.arg("groups") > count:
            dense = _depthwise(*operands, window, convolve, b)
        else:
            dense = _dense(*operands, window, convolve, group, b)
        parts.append(dense)
    y = parts[0] if count == 1 else b.concat(parts, 3)
    return b.reshape(b.transpose(y, TO_NCHW), shape_of(op.results[0]))


def _as_image(value: SSAValue, b: Builder) -> SSAValue:
    first, second, columns = shape_of(value)
    return b.reshape(value, (first, second, 1, columns))


def _dense(
    image: SSAValue,
    weight: SSAValue,
    window: KernelWindow,
    convolve: Convolve,
    group: int,
    b: Builder,
) -> SSAValue:
    image, shape, lists = _placed(image, weight, window, b)
    kernel = b.transpose(weight, TO_NHWC)
    return convolve(Placed(t.Conv2dOp, image, kernel, shape, lists, group))


def _depthwise(
    image: SSAValue, weight: SSAValue, window: KernelWindow, convolve: Convolve, b: Builder
) -> SSAValue:
    image, shape, lists = _placed(image, weight, window, b)
    out, _, rows, columns = shape_of(weight)
    channels = shape_of(image)[3]
    kernel = b.transpose(weight, (2, 3, 0, 1))
    kernel = b.reshape(kernel, (rows, columns, channels, out // channels))
    return convolve(Placed(t.DepthwiseConv2dOp, image, kernel, shape, lists))


def _placed(
    image: SSAValue, weight: SSAValue, window: KernelWindow, b: Builder
) -> tuple[SSAValue, tuple[Dim, ...], dict[str, Sequence[int]]]:
    """Return the image that windows reach, the result's shape, and the lists of a convolution."""
    n, height, width, _ = shape_of(image)
    out, _, kernel_h, kernel_w = shape_of(weight)
    behind = window.behind(height, kernel_h, 0), window.behind(width, kernel_w, 1)
    image, (bottom, right) = evened(image, behind, window.padding, b, window.fill)
    pad = (window.padding[0], bottom, window.padding[1], right)
    lists = {"pad": pad, "stride": window.stride, "dilation": window.dilation}
    return image, (n, *window.made, out), lists


def evened(
    image: SSAValue, behind: Sequence[Dim], most: Sequence[int], b: Builder, fill: float = 0.0
) -> tuple[SSAValue, list[int]]:
    """Return an image whose windows fill its axes from 1 on exactly, and the remaining end padding.

    Elements that no window reads are sliced off: TOSA has no negative padding. Padding that depends
    on a dynamic size is written out, `most` of it, and the excess is sliced off.

    Args:
        image: channels last.
        behind: the padding at the end of each axis; negative where windows leave elements out.
        most: its maximum where it is symbolic.
        fill: the padding value.
    """
    pads = [most[i] if not isinstance(size, int) else 0 for i, size in enumerate(behind)]
    cut = [min(size, 0) if isinstance(size, int) else size for size in behind]
    left = [max(size, 0) if isinstance(size, int) else 0 for size in behind]
    image_element = element(image.type)
    n, *spatial, channels = shape_of(image)
    if any(pads):
        shape = (n, *(size + pad for size, pad in zip(spatial, pads, strict=True)), channels)
        around = b.sizes([0, 0, *(one for pad in pads for one in (0, pad)), 0, 0])
        image = b.op(
            t.PadOp, [image, around, b.number(fill, 1, image_element)], shape, image_element
        )
    if any(size != 0 for size in cut):
        shape = (
            n,
            *(settled(size + gone) for size, gone in zip(spatial, cut, strict=True)),
            channels,
        )
        operands = [image, b.sizes([0] * len(shape)), b.sizes(shape)]
        image = b.op(t.SliceOp, operands, shape, image_element)
    return image, left


def _transposed(
    image: SSAValue,
    weight: SSAValue,
    window: KernelWindow,
    convolve: Convolve,
    group: int,
    b: Builder,
) -> SSAValue:
    n, height, width, _ = shape_of(image)
    _, out, kernel_h, kernel_w = shape_of(weight)
    kernel = b.transpose(weight, (1, 2, 3, 0))
    wanted = [
        pad
        for padding, extra in zip(window.padding, window.extra, strict=True)
        for pad in (-padding, extra - padding)
    ]
    # At most the kernel size minus one may be removed; the rest is sliced off the result.
    pads = [
        max(pad, 1 - size)
        for pad, size in zip(wanted, [kernel_h] * 2 + [kernel_w] * 2, strict=True)
    ]
    rows = (height - 1) * window.stride[0] + kernel_h + pads[0] + pads[1]
    columns = (width - 1) * window.stride[1] + kernel_w + pads[2] + pads[3]
    shape = (n, rows, columns, out)
    lists = {"out_pad": pads, "stride": window.stride}
    y = convolve(Placed(t.TransposeConv2dOp, image, kernel, shape, lists, group))
    for axis, size in ((1, rows), (2, columns)):
        before, behind = (pads[i] - wanted[i] for i in (2 * axis - 2, 2 * axis - 1))
        y = narrow(y, axis, before, size - before - behind, b)
    return y


def part(value: SSAValue, axis: int, index: int, count: int, b: Builder) -> SSAValue:
    """Return one of `count` equal slices."""
    if count == 1:
        return value
    shape = list(shape_of(value))
    shape[axis] //= count
    start = [0] * len(shape)
    start[axis] = index * shape[axis]
    key = weight_key(value)
    if key is not None:
        derived = b.rw.weights.derive(
            "tosa_slice", [key], axis=axis, start=start[axis], size=shape[axis]
        )
        return b.weight(derived)
    operands = [value, b.sizes(start), b.sizes(shape)]
    return b.op(t.SliceOp, operands, shape, element(value.type))
