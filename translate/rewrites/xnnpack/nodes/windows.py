"""Conditions on sizes for window ops and image resizing."""

from __future__ import annotations

from math import isclose

from xdsl.ir import Attribute

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import AnyTensor, dims, element, tensor


def channels_last(type_: Attribute) -> AnyTensor:
    """Return the type `[N, H, W, C]` of images `[N, C, H, W]` or lines `[N, C, W]` of height
    one.
    """
    batch, channels, *space = dims(type_)
    height, width = space if len(space) == 2 else (1, *space)
    return tensor([batch, height, width, channels], element(type_))


def steps_by_sizes(op: SchemaOp) -> bool:
    """Whether torch samples a resized image in steps of old size divided by new size.

    If a scale is stated, torch uses its inverse as the step and rounds the new size down: 9 pixels
    at scale 1/2 become 4 that are 2 apart, not 9/4.
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
    """Return the scale of a resize, down (0) or across (1); a stated scale precedes sizes."""
    if "scale_factors" in op.SCHEMA.by_name:
        scales = op.arg("scale_factors")
        return None if scales is None else float(scales[at])
    scale = op.arg(("scales_h", "scales_w")[at])
    return None if scale is None else float(scale)


def may_miss_the_image(op: SchemaOp) -> bool:
    """Whether `ceil_mode` may start a window after the image's end; torch drops such windows."""
    rows = zip(*_steps_and_extents(op), op.arg("padding"), strict=True)
    return bool(op.arg("ceil_mode")) and any(step + pad > extent for step, extent, pad in rows)


def _steps_and_extents(op: SchemaOp) -> tuple[list[int], list[int]]:
    """Return the distance between windows and the extent of a window, down and across."""
    kernel = op.arg("kernel_size")
    dilation = op.arg("dilation") if "dilation" in op.SCHEMA.by_name else [1, 1]
    extents = [apart * (cells - 1) + 1 for apart, cells in zip(dilation, kernel, strict=True)]
    return op.arg("stride") or kernel, extents


def edges(op: SchemaOp, padding: tuple[int, ...]) -> tuple[int, ...]:
    """Return top, right, bottom, left padding; with `ceil_mode`, windows may exceed the image."""
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
