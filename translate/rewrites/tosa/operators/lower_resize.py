"""Resizing of images and lines, nearest and linear: RESIZE, or GATHER where it has no numbers for it.

RESIZE samples at the places `(i · denominator + offset) / numerator`; its numbers are those that give
torch's places, which are asked of torch itself, a stated scale included. Where none do (a numerator
above 2048, less than a sixteenth of the size), rows and columns are gathered and weighted.

Before:
    %y = aten.upsample_nearest2d.default(%x, [6, 6]) : (tensor<1x2x3x3xf32>) -> tensor<1x2x6x6xf32>
After:
    %0 = tosa.transpose %x {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x2x3x3xf32>) -> tensor<1x3x3x2xf32>
    %1 = tosa.const_shape {values = dense<[2, 1, 2, 1]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %2 = tosa.const_shape {values = dense<-1> : tensor<2xindex>} : () -> !tosa.shape<2>
    %3 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
    %4 = tosa.resize %0, %1, %2, %3 {mode = NEAREST_NEIGHBOR} : (tensor<1x3x3x2xf32>, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x6x6x2xf32>
    %y = tosa.transpose %4 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x6x6x2xf32>) -> tensor<1x2x6x6xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import ResizeModeAttr
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrowed, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import TO_NCHW, TO_NHWC
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa, needs_floats
from stepwell.translate.rewrites.tosa.operators.places import Axis, neighbours
from stepwell.translate.rewrites.tosa.operators.rows import gathered
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

MODES: dict[type[Operation], str] = {
    aten.UpsampleNearest1dDefault: "nearest",
    aten.UpsampleNearest1dVec: "nearest",
    aten.UpsampleNearest2dDefault: "nearest",
    aten.UpsampleNearest2dVec: "nearest",
    aten.UpsampleNearest3dDefault: "nearest",
    aten.UpsampleNearest3dVec: "nearest",
    op_class("aten._upsample_nearest_exact1d.default"): "nearest-exact",
    op_class("aten._upsample_nearest_exact1d.vec"): "nearest-exact",
    op_class("aten._upsample_nearest_exact2d.default"): "nearest-exact",
    op_class("aten._upsample_nearest_exact2d.vec"): "nearest-exact",
    op_class("aten._upsample_nearest_exact3d.default"): "nearest-exact",
    op_class("aten._upsample_nearest_exact3d.vec"): "nearest-exact",
    aten.UpsampleLinear1dDefault: "linear",
    aten.UpsampleLinear1dVec: "linear",
    aten.UpsampleBilinear2dDefault: "linear",
    aten.UpsampleBilinear2dVec: "linear",
    aten.UpsampleTrilinear3dDefault: "linear",
    aten.UpsampleTrilinear3dVec: "linear",
}
"""How an op samples."""


def axes_of(op: SchemaOp) -> tuple[Axis, ...]:
    """What becomes of each axis behind the channels."""
    held, made = shape_of(op.operands[0])[2:], shape_of(op.results[0])[2:]
    mode = MODES[type(op)]
    corners = mode == "linear" and bool(op.arg("align_corners"))
    return tuple(
        Axis(size, wanted, mode, scale, corners)
        for size, wanted, scale in zip(held, made, stated_scales(op, len(held)), strict=True)
    )


def stated_scales(op: SchemaOp, count: int) -> Sequence[float | None]:
    """The scales that an op was given, which torch prefers to the ratio of the sizes."""
    if "scale_factors" in op.SCHEMA.by_name:
        scales = op.arg("scale_factors")
        return [None] * count if scales is None else [float(scale) for scale in scales]
    names = ("scales",) if count == 1 else ("scales_d", "scales_h", "scales_w")[-count:]
    return [None if op.arg(name) is None else float(op.arg(name)) for name in names]


def not_resized(op: SchemaOp) -> Refusal | None:
    """Sizes that are numbers."""
    if not is_known((*shape_of(op.operands[0])[1:], *shape_of(op.results[0])[2:])):
        return Refusal("the plane of the image is symbolic")
    for axis in axes_of(op):
        if axis.scale is not None and not axis.scale_is_its_own():
            return Refusal(f"{axis.size} elements by a scale of {axis.scale} are not {axis.wanted}")
    return None


@dataclass(frozen=True)
class LowerResize(LowerToTosa):
    """`upsample_nearest`, `upsample_linear` and their kin, of one to three axes."""

    name: ClassVar[str] = "lower-resize-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(MODES)
    bound: ClassVar[Bound] = roundings("torch rounds the places between elements")

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, planes of known sizes."""
        return needs_floats(op) or not_resized(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One RESIZE of an image; halves are interpolated in f32, as torch does."""
        x, axes = op.operands[0], axes_of(op)
        linear = MODES[type(op)] == "linear"
        value = b.single(x) if linear else x
        if len(axes) <= 2 and all(axis.parameters() is not None for axis in axes):
            value = _resized(value, axes, b)
        else:
            for number, axis in enumerate(axes, start=2):
                value = _sampled(value, number, axis, b)
        return narrowed(value, x, b) if linear else value


def resize(
    image: SSAValue, axes: Sequence[Axis], held: Attribute, b: Builder
) -> tuple[SSAValue, int]:
    """RESIZE of an NHWC image, and the factor of its sums if they are integers."""
    found = [axis.parameters() for axis in axes]
    (up_y, down_y, from_y, to_y), (up_x, down_x, from_x, to_x) = (n for n in found if n is not None)
    n, _, _, channels = shape_of(image)
    shape = (n, axes[0].wanted, axes[1].wanted, channels)
    operands = [
        image,
        b.sizes((up_y, down_y, up_x, down_x)),
        b.sizes((from_y, from_x)),
        b.sizes((to_y, to_x)),
    ]
    mode = ResizeModeAttr("BILINEAR" if axes[0].mode == "linear" else "NEAREST_NEIGHBOR")
    return b.op(t.ResizeOp, operands, shape, held, mode=mode), up_y * up_x


def as_image(x: SSAValue, axes: Sequence[Axis], b: Builder) -> tuple[SSAValue, Sequence[Axis]]:
    """The image in NHWC; a line is one of height 1."""
    if len(axes) == 2:
        return b.transpose(x, TO_NHWC), axes
    n, channels, width = shape_of(x)
    image = b.transpose(b.reshape(x, (n, channels, 1, width)), TO_NHWC)
    return image, (Axis(1, 1, axes[0].mode, None, axes[0].corners), *axes)


def _resized(x: SSAValue, axes: Sequence[Axis], b: Builder) -> SSAValue:
    image, plane = as_image(x, axes, b)
    y, _ = resize(image, plane, element(x.type), b)
    made = (*shape_of(x)[:2], *(axis.wanted for axis in axes))
    return b.reshape(b.transpose(y, TO_NCHW), made)


def _sampled(x: SSAValue, number: int, axis: Axis, b: Builder) -> SSAValue:
    """One axis by GATHER; between two elements each with its share."""
    lower, upper, share = neighbours(axis.places(), axis.size)
    first = gathered(x, number, lower, b)
    if not bool(share.any()):
        return first
    shape = [axis.wanted if i == number else 1 for i in range(len(shape_of(x)))]
    shares = [b.constant(part.to(torch.float32).reshape(shape)) for part in (1 - share, share)]
    second = gathered(x, number, upper, b)
    near, far = (
        b.binary(t.MulOp, value, part, f32)
        for value, part in zip((first, second), shares, strict=True)
    )
    return b.binary(t.AddOp, near, far)
