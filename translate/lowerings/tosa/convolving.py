"""Split a `convolution` of lines, images or volumes into TOSA's operators, for any element type.

A line is an image of height 1. Groups that are not depthwise are convolutions of slices, whose
channels are concatenated. Elements that no window reads are sliced off, since TOSA has no negative
padding. The part of a transposed convolution's result that cannot be removed at the begin of an
axis is sliced off after the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.sizes.size import Dim, settled
from stepwell.translate.lowerings.tosa.values import Value, concat
from stepwell.translate.rewrites.tosa.operators.building import i64s, shape_of

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
TO_NDHWC, TO_NCDHW = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


@dataclass(frozen=True)
class Placed:
    """One operator of a convolution, for one group, without its bias and zero points.

    `image` is `[N, H, W, C]` or `[N, D, H, W, C]`, `shape` the result's; `lists` are `pad`,
    `stride` and `dilation`, or `out_pad` and `stride`.
    """

    operator: type[TosaOp]
    image: Value
    kernel: Value
    shape: Sequence[Dim]
    lists: Mapping[str, Sequence[int]]
    group: int = 0

    def summed(self, bias: Value, given: Attribute, sums: Attribute, zero_point: int = 0) -> Value:
        """Insert the operator, and return its result.

        Args:
            bias: the bias.
            given: the element type of the result.
            sums: the type of the accumulators.
            zero_point: the zero point of the image.
        """
        zeros = (
            self.image.b.number(zero_point, 1, self.image.dtype),
            self.image.b.zero(self.kernel.dtype),
        )
        lists = {name: i64s(values) for name, values in self.lists.items()}
        operands = (self.kernel, bias, *zeros)
        return self.image.made(
            self.operator, self.shape, *operands, dtype=given, acc_type=sums, **lists
        )


Convolve = Callable[[Placed], Value]
"""Inserts one operator."""

ONCE: Mapping[str, Sequence[int]] = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
"""The lists of a convolution with a kernel of one element."""


@dataclass(frozen=True)
class KernelWindow:
    """The movement of a kernel over the axes of an image or a volume, and its result's sizes."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    extra: Sequence[int]
    made: Sequence[Dim]

    def end_padding(self, held: Sequence[Dim], kernel: Sequence[int]) -> list[Dim]:
        """Return the end padding with which the windows fill the axes exactly, as TOSA requires."""
        ends: list[Dim] = []
        for axis, size in enumerate(held):
            span = (kernel[axis] - 1) * self.dilation[axis] + 1
            last = (self.made[axis] - 1) * self.stride[axis]
            ends.append(settled(last + span - size - self.padding[axis]))
        return ends


def window_of(op: SchemaOp) -> KernelWindow:
    """Return the window of a `convolution`; a line's window moves over an image of height 1."""
    names = ("stride", "padding", "dilation", "output_padding")
    lists = [list(op.arg(name)) for name in names]
    sizes = list(shape_of(op.results[0])[2:])
    if len(sizes) == 1:
        lists = [[whole, *own] for whole, own in zip((1, 0, 1, 0), lists, strict=True)]
        sizes = [1, *sizes]
    stride, padding, dilation, extra = lists
    return KernelWindow(stride, padding, dilation, extra, sizes)


def slices_of(op: SchemaOp) -> int:
    """Return the number of operators of a `convolution`: one, or one for each group."""
    groups, (_, width, *axes) = op.arg("groups"), shape_of(op.operands[1])
    is_depthwise = width == 1 and not op.arg("transposed") and len(axes) < 3
    return 1 if is_depthwise else groups


def convolved(
    op: SchemaOp, x: Value, weight: Value, convolve: Convolve, fill: float = 0.0
) -> Value:
    """Return the result of a `convolution`, `[N, C, W]`, `[N, C, H, W]` or `[N, C, D, H, W]`.

    Args:
        op: the convolution.
        x: the operand, in the form that the operators take.
        weight: the weight in torch's order.
        convolve: inserts one operator.
        fill: the padding value.
    """
    if x.rank == 3:
        x, weight = (value.reshape(*value.shape[:2], 1, value.shape[2]) for value in (x, weight))
    is_volume, window, count = x.rank == 5, window_of(op), slices_of(op)
    order, back = (TO_NDHWC, TO_NCDHW) if is_volume else (TO_NHWC, TO_NCHW)
    image, pad = x.permute(order), list[int]()
    if not op.arg("transposed"):
        end = window.end_padding(image.shape[1:-1], weight.shape[2:])
        image, ends = fit_to_windows(image, end, window.padding, fill)
        pad = [size for pair in zip(window.padding, ends, strict=True) for size in pair]
    lists = {"pad": pad, "stride": window.stride, "dilation": window.dilation}
    parts: list[Value] = []
    for group in range(count):
        side, kernel = image.part(x.rank - 1, group, count), weight.part(0, group, count)
        if op.arg("transposed"):
            parts.append(_transposed(side, kernel, window, convolve, group))
            continue
        shape = (side.shape[0], *window.made, kernel.shape[0])
        if op.arg("groups") > count:
            out, _, rows, columns = kernel.shape
            channels = side.shape[3]
            kernel = kernel.permute((2, 3, 0, 1)).reshape(rows, columns, channels, out // channels)
            placed = Placed(t.DepthwiseConv2dOp, side, kernel, shape, lists)
        else:
            operator = t.Conv3dOp if is_volume else t.Conv2dOp
            placed = Placed(operator, side, kernel.permute(order), shape, lists, group)
        parts.append(convolve(placed))
    y = parts[0] if count == 1 else concat(parts, x.rank - 1)
    return y.permute(back).reshape(*shape_of(op.results[0]))


def fit_to_windows(
    image: Value, end: Sequence[Dim], most: Sequence[int], fill: float = 0.0
) -> tuple[Value, list[int]]:
    """Return an image whose windows fill its axes from 1 on exactly, and the remaining end padding.

    Elements that no window reads are sliced off: TOSA has no negative padding. If the padding
    depends on a dynamic size, `most` elements are padded and the excess is sliced off.

    Args:
        image: channels last.
        end: the padding at the end of each axis; negative where windows leave elements out.
        most: the maximum of a symbolic padding.
        fill: the padding value.
    """
    pads = [most[i] if not isinstance(size, int) else 0 for i, size in enumerate(end)]
    cut = [min(size, 0) if isinstance(size, int) else size for size in end]
    left = [max(size, 0) if isinstance(size, int) else 0 for size in end]
    n, *spatial, channels = image.shape
    image = image.pad([0, 0, *(one for pad in pads for one in (0, pad)), 0, 0], fill)
    if any(size != 0 for size in cut):
        held = (settled(size + gone) for size, gone in zip(spatial, cut, strict=True))
        shape = (n, *held, channels)
        sizes = image.b.sizes([0] * len(shape)), image.b.sizes(shape)
        image = image.made(t.SliceOp, shape, *sizes)
    return image, left


def _transposed(
    image: Value, weight: Value, window: KernelWindow, convolve: Convolve, group: int
) -> Value:
    n, height, width, _ = image.shape
    _, out, kernel_h, kernel_w = weight.shape
    kernel = weight.permute((1, 2, 3, 0))
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
        before, end = (pads[i] - wanted[i] for i in (2 * axis - 2, 2 * axis - 1))
        y = y.narrow(axis, before, size - before - end)
    return y
