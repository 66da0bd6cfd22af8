"""The windows of torch's pools, and which of them TOSA's pools have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.limits import LevelLimits
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import settled
from stepwell.translate.rewrites.tosa.operators.building import shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import reduced_axes
from stepwell.translate.rewrites.tosa.operators.sizes import is_known


def is_image_mean(op: SchemaOp, level: LevelLimits) -> bool:
    """Whether an op is a mean over the whole plane of an NCHW image, within a level's pool size."""
    shape = shape_of(op.operands[0])
    if not isinstance(op, aten.MeanDim) or len(shape) != 4 or reduced_axes(op) != [2, 3]:
        return False
    return is_known(shape[2:]) and max(shape[2:]) <= level.kernel


def pair(values: Sequence[int]) -> list[int]:
    """Return a pair of numbers, one for each axis."""
    return list(values) * 2 if len(values) == 1 else list(values)


def padding(op: SchemaOp) -> tuple[Any, Any, Any, Any]:
    """Return top, bottom, left, right padding; bottom and right make the windows fill the image."""
    kernel, before = pair(op.arg("kernel_size")), pair(op.arg("padding"))
    stride = pair(op.arg("stride") or op.arg("kernel_size"))
    sizes, size = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    behind = [(size[i] - 1) * stride[i] + kernel[i] - sizes[i] - before[i] for i in range(2)]
    behind = [settled(one) for one in behind]
    return before[0], behind[0], before[1], behind[1]


Window = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Return kernel, stride, and pad as top, bottom, left, right."""


def counts_padding(op: SchemaOp) -> bool:
    """Whether the zeros around an image count in its averages; in TOSA they never do."""
    is_average = isinstance(op, aten.AvgPool2dDefault)
    return is_average and op.arg("count_include_pad") and any(pair(op.arg("padding")))


def is_dilated(op: SchemaOp) -> bool:
    """Whether a pool's dilation is not 1."""
    is_maximum = isinstance(op, aten.MaxPool2dDefault)
    return is_maximum and any(d != 1 for d in pair(op.arg("dilation")))


def window_places(op: SchemaOp) -> tuple[list[int], list[int]] | None:
    """Return the rows and the columns that the windows of a pool read, window by window.

    Padding, which is never a maximum, is replaced by another cell of its window. Return None if a
    window has no other cell.
    """
    sizes, made = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    lists = (op.arg(name) for name in ("kernel_size", "stride", "padding", "dilation"))
    kernel, stride, padding, dilation = (pair(values or op.arg("kernel_size")) for values in lists)
    found: tuple[list[int], list[int]] = ([], [])
    for axis, places in enumerate(found):
        for window in range(made[axis]):
            first = window * stride[axis] - padding[axis]
            cells = [first + i * dilation[axis] for i in range(kernel[axis])]
            inside = [cell for cell in cells if 0 <= cell < sizes[axis]]
            if not inside:
                return None
            places += [cell if cell in inside else inside[0] for cell in cells]
    return found


def not_pooled(op: SchemaOp) -> Refusal | None:
    """Return why TOSA has no such pool, even with padding and slices before it."""
    if len(shape_of(op.operands[0])) != 4:
        return Refusal("the input is not a batch of images")
    if isinstance(op, aten.AvgPool2dDefault) and op.arg("divisor_override") is not None:
        return Refusal("divisor_override is set; AVG_POOL2D divides by the number of elements")
    behind = padding(op)[1::2]
    if is_known(behind):
        return None
    if isinstance(op, aten.AvgPool2dDefault):
        is_even = counts_padding(op) or not any(pair(op.arg("padding")))
        if op.arg("ceil_mode") or not is_even:
            return Refusal("a symbolic size decides which elements of a window count")
    return None


def pool_window(op: SchemaOp) -> Window | Refusal:
    """Return the window of a pool that a TOSA pool can express, or why none can.

    A negative width at the bottom or right counts the rows or columns that no window reads.
    """
    refusal = not_pooled(op)
    if refusal is not None:
        return refusal
    if counts_padding(op):
        return Refusal("count_include_pad is set; AVG_POOL2D does not count padding")
    if is_dilated(op):
        return Refusal("dilation is not 1; MAX_POOL2D has none")
    kernel, pad = pair(op.arg("kernel_size")), padding(op)
    if not is_known(pad):
        return Refusal("the end padding depends on a symbolic size")
    return kernel, pair(op.arg("stride") or op.arg("kernel_size")), pad
