"""Lowerings of nearest and linear resizing of images and lines to RESIZE, or to GATHER.

RESIZE samples at the positions `(i · denominator + offset) / numerator`. Its parameters are chosen
to give PyTorch's positions, which PyTorch itself computes, including for a stated scale. If there
are no such parameters (a numerator above 2048, less than a sixteenth of the size), rows and columns
are gathered and weighted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import ResizeModeAttr
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, no_refusal
from stepwell.translate.lowerings.tosa.convolving import TO_NCHW, TO_NHWC
from stepwell.translate.lowerings.tosa.movement import gathered
from stepwell.translate.lowerings.tosa.values import Value, needs_floats
from stepwell.translate.rewrites.tosa.operators.building import shape_of
from stepwell.translate.rewrites.tosa.operators.places import ResizedAxis, neighbors
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

UPSAMPLINGS = {
    f"aten.{name}{space}d.{overload}": mode
    for mode, names in (
        ("nearest", dict.fromkeys((2, 1, 3), "upsample_nearest")),
        ("nearest-exact", dict.fromkeys((1, 2, 3), "_upsample_nearest_exact")),
        ("linear", {1: "upsample_linear", 2: "upsample_bilinear", 3: "upsample_trilinear"}),
    )
    for space, name in names.items()
    for overload in ("default", "vec")
}
"""Op → its sampling mode."""
MODES = {op_class(name): mode for name, mode in UPSAMPLINGS.items()}


def axes_of(op: SchemaOp) -> tuple[ResizedAxis, ...]:
    """Return how each axis after the channels is resized."""
    sizes, made = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    mode = MODES[type(op)]
    corners = mode == "linear" and bool(op.arg("align_corners"))
    return tuple(
        ResizedAxis(size, wanted, mode, scale, corners)
        for size, wanted, scale in zip(sizes, made, stated_scales(op, len(sizes)), strict=True)
    )


def stated_scales(op: SchemaOp, count: int) -> Sequence[float | None]:
    """Return the op's scale arguments, which PyTorch prefers to the ratio of the sizes."""
    if "scale_factors" in op.SCHEMA.by_name:
        scales = op.arg("scale_factors")
        return [None] * count if scales is None else [float(scale) for scale in scales]
    names = ("scales",) if count == 1 else ("scales_d", "scales_h", "scales_w")[-count:]
    return [None if op.arg(name) is None else float(op.arg(name)) for name in names]


def not_resized(op: SchemaOp) -> Refusal | None:
    """Refuse a resize unless its sizes are static and match the scale."""
    if not is_known((*shape_of(op.operands[0])[1:], *shape_of(op.results[0])[2:])):
        return Refusal("the height or width of the image is symbolic")
    for axis in axes_of(op):
        if axis.scale is not None and not axis.scale_is_its_own():
            return Refusal(f"{axis.size} elements times scale {axis.scale} are not {axis.wanted}")
    return None


@lowers(
    UPSAMPLINGS,
    to="tosa",
    bound=roundings("torch rounds the places between elements"),
    sample=("1x2x3x3xf32", [6, 6]),
)
def resize(x: Value, *, op: Any, form: str) -> Value:
    """Lower to one RESIZE of an image; halves are interpolated in f32, as in PyTorch."""
    needs_floats(op, x)
    no_refusal(not_resized(op))
    axes = axes_of(op)
    value = x.single() if form == "linear" else x
    if len(axes) <= 2 and all(axis.parameters() is not None for axis in axes):
        image, plane = as_image(value, axes)
        y, _ = resized(image, plane)
        value = y.permute(TO_NCHW).reshape(*x.shape[:2], *(axis.wanted for axis in axes))
    else:
        for number, axis in enumerate(axes, start=2):
            value = _sampled(value, number, axis)
    return value.cast(x.dtype)


def resized(image: Value, axes: Sequence[ResizedAxis], held: Any = None) -> tuple[Value, int]:
    """Return RESIZE of an NHWC image and, for integers, the factor by which its sums are scaled."""
    parameters = [axis.parameters() for axis in axes]
    (up_y, down_y, from_y, to_y), (up_x, down_x, from_x, to_x) = (
        n for n in parameters if n is not None
    )
    n, _, _, channels = image.shape
    lists = ((up_y, down_y, up_x, down_x), (from_y, from_x), (to_y, to_x))
    operands = [image.b.sizes(values) for values in lists]
    mode = ResizeModeAttr("BILINEAR" if axes[0].mode == "linear" else "NEAREST_NEIGHBOR")
    shape = (n, axes[0].wanted, axes[1].wanted, channels)
    return image.made(t.ResizeOp, shape, *operands, dtype=held, mode=mode), up_y * up_x


def as_image(x: Value, axes: Sequence[ResizedAxis]) -> tuple[Value, Sequence[ResizedAxis]]:
    """Return the image in NHWC; a line is an image of height 1."""
    if len(axes) == 2:
        return x.permute(TO_NHWC), axes
    n, channels, width = x.shape
    image = x.reshape(n, channels, 1, width).permute(TO_NHWC)
    return image, (ResizedAxis(1, 1, axes[0].mode, None, axes[0].corners), *axes)


def _sampled(x: Value, number: int, axis: ResizedAxis) -> Value:
    """Resize one axis by GATHER, as a weighted sum of two elements if needed."""
    lower, upper, share = neighbors(axis.places(), axis.size)
    first = gathered(x, number, lower)
    if not bool(share.any()):
        return first
    shape = [axis.wanted if i == number else 1 for i in range(x.rank)]
    near, far = (x.tensor(part.to(torch.float32).reshape(shape)) for part in (1 - share, share))
    second = gathered(x, number, upper)
    return first * near + second * far


RULES = lowerings_of(__name__)
