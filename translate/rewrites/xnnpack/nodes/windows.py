"""The conditions that windows and image resizing place on sizes."""

from __future__ import annotations

from math import isclose

from xdsl.ir import Attribute

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import AnyTensor, dims, element, tensor


def channels_last(type_: Attribute) -> AnyTensor:
    """The type `[N, H, W, C]` of images `[N, C, H, W]`, or of lines `[N, C, W]` of height one."""
    batch, channels, *space = dims(type_)
    height, width = space if len(space) == 2 else (1, *space)
    return tensor([batch, height, width, channels], element(type_))


def steps_by_sizes(op: SchemaOp) -> bool:
    """Whether torch samples a resized image in steps of old size divided by new size.

    If a scale is given, torch steps by its inverse, and the new size is rounded down: 9 pixels at
    half the size are 4, each 2 apart and not 9/4.
    """
    for at in (0, 1):
        scale = stated_scale(op, at)
        dim, made = dims(op.operands[0].type)[2 + at], dims(op.results[0].type)[2 + at]
        if scale is None or not scale > 0.0:
            continue  # torch uses the sizes.
        if isinstance(dim, Size) or isinstance(made, Size):
            return False
        if not isclose(1.0 / scale, dim / made, rel_tol=2.0**-22):
            return False
    return True


def stated_scale(op: SchemaOp, at: int) -> float | None:
    """Return the scale, down (0) or across (1), of a resize; torch prefers it to sizes."""
    if "scale_factors" in op.SCHEMA.by_name:
        scales = op.arg("scale_factors")
        return None if scales is None else float(scales[at])
    scale = op.arg(("scales_h", "scales_w")[at])
    return None if scale is None else float(scale)


def may_miss_the_image(op: SchemaOp) -> bool:
    """Whether `ceil_mode` may start a window after the image's end, which torch then drops."""
    rows = zip(*_steps_and_extents(op), op.arg("padding"), strict=True)
    return bool(op.arg("ceil_mode")) and any(step + pad > extent for step, extent, pad in rows)


def _steps_and_extents(op: SchemaOp) -> tuple[list[int], list[int]]:
    """Return the distance between windows and the extent of one, down and across."""
    kernel = op.arg("kernel_size")
    dilation = op.arg("dilation") if "dilation" in op.SCHEMA.by_name else [1, 1]
    extents = [apart * (cells - 1) + 1 for apart, cells in zip(dilation, kernel, strict=True)]
    return op.arg("stride") or kernel, extents


def edges(op: SchemaOp, padding: tuple[int, ...]) -> tuple[int, ...]:
    """Return top, right, bottom, left padding; `ceil_mode` windows may pass the edge."""
    padded, (steps, extents) = op.arg("padding"), _steps_and_extents(op)
    over: list[int] = []
    for at in (0, 1):
        size, windows = dims(op.operands[0].type)[2 + at], dims(op.results[0].type)[2 + at]
        if isinstance(size, Size) or isinstance(windows, Size):
            # Far enough that `(size + over) // stride` is the quotient rounded up, for any size.
            over.append(steps[at] - 1 if op.arg("ceil_mode") else 0)
            continue
        reach = (windows - 1) * steps[at] + extents[at]
        over.append(max(0, reach - (size + 2 * padded[at])))
    return (padding[0], padding[1] + over[1], padding[0] + over[0], padding[1])
