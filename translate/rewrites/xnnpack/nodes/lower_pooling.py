"""Pooling and resizing of images, channels last between transposes like convolutions.

Before:
    %y = aten.max_pool2d.default(%x, [2, 2], [2, 2]) : (tensor<1x3x8x8xf32>) -> tensor<1x3x4x4xf32>
After:
    %0 = xnnpack.static_transpose(%x, perm=[0, 2, 3, 1]) : (tensor<1x3x8x8xf32>) -> tensor<1x8x8x3xf32>
    %1 = xnnpack.max_pooling_2d(%0, kernel=[2, 2], padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x8x8x3xf32>) -> tensor<1x4x4x3xf32>
    %y = xnnpack.static_transpose(%1, perm=[0, 3, 1, 2]) : (tensor<1x4x4x3xf32>) -> tensor<1x3x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.bounds import roundings
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import dims
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_convolution import channels_last
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc


@dataclass(frozen=True)
class Pooling:
    """A node over images with its fields."""

    op: SchemaOp
    node: type[XnnpackOp]
    fields: tuple[tuple[str, Any], ...]
    zeros: tuple[int, int] = (0, 0)
    """Rows and columns of zeros that are written around the image first: they are averaged too."""


@dataclass(frozen=True)
class LowerPooling(Rewrite[Pooling]):
    """`aten.{max_pool2d,avg_pool2d,mean over planes,upsample_bilinear2d}` to XNNPACK's nodes."""

    name: ClassVar[str] = "lower-pooling"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxPool2dDefault,
        aten.AvgPool2dDefault,
        aten.AdaptiveAvgPool2dDefault,
        aten._AdaptiveAvgPool2dDefault,
        aten.MeanDim,
        aten.UpsampleBilinear2dVec,
        aten.UpsampleBilinear2dDefault,
    )
    bound: ClassVar[Bound] = roundings("sums in another order")

    def match(self, op: SchemaOp, program: Program) -> Pooling | Refusal | None:
        """Guards: float images, windows that the node computes as torch does."""
        if isinstance(op, aten.MeanDim) and not is_plane_mean(op):
            return None
        refusal = not_for_xnnpack(op)
        if refusal is None and len(dims(op.operands[0].type)) != 4:
            refusal = Refusal("the input is not a batch of images")
        if refusal is not None:
            return refusal
        if isinstance(op, aten.MeanDim):
            return Pooling(op, xnnpack.GlobalAveragePooling2d, (("keep_dims", True),))
        if isinstance(op, aten.AdaptiveAvgPool2dDefault | aten._AdaptiveAvgPool2dDefault):
            return not_of_single_elements(_adaptive(op))
        if isinstance(op, aten.MaxPool2dDefault | aten.AvgPool2dDefault):
            if op.arg("ceil_mode") and any(isinstance(d, Size) for d in dims(op.operands[0].type)):
                return Refusal("a size is symbolic; windows may hang over the edge by any amount")
            is_max = isinstance(op, aten.MaxPool2dDefault)
            return not_of_single_elements(_max(op) if is_max else _average(op))
        size = dims(op.results[0].type)[2:]
        if any(isinstance(d, Size) for d in size):
            return Refusal(
                "the resized image has a symbolic size; XNNPACK resizes to a constant one"
            )
        corners = bool(op.arg("align_corners"))
        if not corners and not steps_by_sizes(op):
            return Refusal(
                "the scale that is stated is not the ratio of the sizes, by which XNNPACK steps"
            )
        return Pooling(
            op, xnnpack.StaticResizeBilinear2d, (("new_size", size), ("align_corners", corners))
        )

    def deviates(self, match: Pooling, program: Program) -> Deviation | None:
        """An average of a window with a NaN may be −∞; the stock flow has one for plain windows."""
        if match.node is not xnnpack.AveragePooling2d:
            return FLUSHED
        is_plain = isinstance(match.op, aten.AvgPool2dDefault) and not any(match.zeros)
        return Deviation("the average of a window with a NaN may be −∞", accepted=is_plain)

    def build(self, match: Pooling, rw: Rewriter) -> None:
        """Channels last, the node, channels second."""
        op = match.op
        image = to_nhwc(rw, op.operands[0])
        if any(match.zeros):
            amounts = [0, *match.zeros, 0]
            padded = xnnpack.StaticConstantPad.make(
                image, pre_paddings=amounts, post_paddings=amounts, padding_value=0.0
            )
            image = rw.insert(padded).results[0]
        is_global = match.node is xnnpack.GlobalAveragePooling2d
        made = None if is_global else channels_last(op.results[0].type)
        new = match.node.make(image, result=made, **dict(match.fields))
        rw.insert(new)
        rw.replace(op, [to_nchw(rw, new.output, op.results[0].type)])


def steps_by_sizes(op: SchemaOp) -> bool:
    """Whether torch samples a resized image in steps of old size by new size.

    It steps by the inverse of a scale if one is stated, and the new size is rounded down: 9 pixels
    at half the size are 4, each 2 apart and not 9/4.
    """
    for at in (0, 1):
        scale = stated_scale(op, at)
        given, made = dims(op.operands[0].type)[2 + at], dims(op.results[0].type)[2 + at]
        if scale is None or not scale > 0.0:
            continue  # torch takes the sizes.
        if isinstance(given, Size) or isinstance(made, Size):
            return False
        if not isclose(1.0 / scale, given / made, rel_tol=2.0**-22):
            return False
    return True


def stated_scale(op: SchemaOp, at: int) -> float | None:
    """The scale, down (0) or across (1), that a resize was given; torch prefers it to the sizes."""
    if "scale_factors" in op.SCHEMA.by_name:
        scales = op.arg("scale_factors")
        return None if scales is None else float(scales[at])
    scale = op.arg(("scales_h", "scales_w")[at])
    return None if scale is None else float(scale)


def not_of_single_elements(found: Pooling | Refusal) -> Pooling | Refusal:
    """Not every version of XNNPACK pools windows of one element; a slice runs on all."""
    if isinstance(found, Pooling) and dict(found.fields).get("kernel") == (1, 1):
        return Refusal("not every XNNPACK pools windows of one element, and a slice has them")
    return found


def is_plane_mean(op: SchemaOp) -> bool:
    """Whether a mean is over height and width of images and keeps no other dtype."""
    rank = len(dims(op.operands[0].type))
    axes = op.arg("dim")
    if rank != 4 or axes is None or op.arg("dtype") is not None:
        return False
    return sorted(a % 4 for a in axes) == [2, 3]


def _adaptive(op: SchemaOp) -> Pooling | Refusal:
    rows, columns = dims(op.operands[0].type)[2:]
    out_rows, out_columns = dims(op.results[0].type)[2:]
    if (out_rows, out_columns) == (1, 1):
        return Pooling(op, xnnpack.GlobalAveragePooling2d, (("keep_dims", True),))
    if isinstance(rows, Size) or isinstance(columns, Size):
        return Refusal("the image has a symbolic size, and so have its windows")
    assert isinstance(out_rows, int) and isinstance(out_columns, int)
    if rows % out_rows or columns % out_columns:
        return Refusal(
            f"{rows}×{columns} become {out_rows}×{out_columns}, in windows of several sizes"
        )
    window = (rows // out_rows, columns // out_columns)
    return Pooling(op, xnnpack.AveragePooling2d, (("kernel", window), ("stride", window)))


def _max(op: SchemaOp) -> Pooling | Refusal:
    kernel = tuple(op.arg("kernel_size"))
    return Pooling(
        op,
        xnnpack.MaxPooling2d,
        (
            ("kernel", kernel),
            ("stride", tuple(op.arg("stride")) or kernel),
            ("padding", edges(op, tuple(op.arg("padding")))),
            ("dilation", tuple(op.arg("dilation"))),
        ),
    )


def _average(op: SchemaOp) -> Pooling | Refusal:
    """XNNPACK divides by the cells inside the image, as torch does where padding does not count."""
    kernel = tuple(op.arg("kernel_size"))
    padding = tuple(op.arg("padding"))
    if op.arg("divisor_override") not in (None, kernel[0] * kernel[1]):
        return Refusal("divisor_override is not the window's size, which XNNPACK divides by")
    counted = padding if op.arg("count_include_pad") else (0, 0)
    rest = (padding[0] - counted[0], padding[1] - counted[1])
    padding_of_node = edges(op, rest)
    if any(padding_of_node) and op.arg("divisor_override") is not None:
        return Refusal(
            "divisor_override is set and windows hang over the edge, where XNNPACK counts cells"
        )
    return Pooling(
        op,
        xnnpack.AveragePooling2d,
        (
            ("kernel", kernel),
            ("stride", tuple(op.arg("stride")) or kernel),
            ("padding", padding_of_node),
        ),
        counted,
    )


def edges(op: SchemaOp, padding: tuple[int, ...]) -> tuple[int, ...]:
    """Top, right, bottom and left padding; with `ceil_mode` the last windows hang over the edge."""
    kernel, padded = op.arg("kernel_size"), op.arg("padding")
    stride = op.arg("stride") or kernel
    dilation = op.arg("dilation") if "dilation" in op.SCHEMA.by_name else [1, 1]
    over: list[int] = []
    for at in (0, 1):
        size, windows = dims(op.operands[0].type)[2 + at], dims(op.results[0].type)[2 + at]
        if isinstance(size, Size) or isinstance(windows, Size):
            over.append(0)  # Windows that hang over have been refused.
            continue
        reach = (windows - 1) * stride[at] + dilation[at] * (kernel[at] - 1) + 1
        over.append(max(0, reach - (size + 2 * padded[at])))
    return (padding[0], padding[1] + over[1], padding[0] + over[0], padding[1])
