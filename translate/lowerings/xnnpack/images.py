"""Lowerings of pooling and resizing of images: channels-last nodes between transposes.

XNNPACK resizes bilinearly, to a constant size. In nearest-neighbor upsampling by a whole factor,
each pixel is repeated in its row, and each row is repeated: concatenations, which copy memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from xdsl.ir import Attribute, Block, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import FLUSHED, Deviation
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.range_analysis import is_finite, is_summable
from stepwell.translate.rewrites.building import is_open_once, static_dims
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    may_be_empty,
    may_cut_all,
    not_for_xnnpack,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    concatenate,
    reshape,
    to_nchw,
    to_nhwc,
)
from stepwell.translate.rewrites.xnnpack.nodes.windows import (
    channels_last,
    edges,
    may_miss_the_image,
    stated_scale,
    steps_by_sizes,
)

RESIZES = ("aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d.default")
POOLINGS = (
    "aten.max_pool2d.default",
    "aten.avg_pool2d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten.mean.dim",
    *RESIZES,
)
"""Ops that become a single node over images."""


@dataclass(frozen=True)
class Pooling:
    """The XNNPACK node that pools or resizes images, and its fields."""

    node: type[XnnpackOp]
    fields: dict[str, Any]
    zeros: tuple[int, int] = (0, 0)
    """Rows and columns of zeros that are padded before the node: they are averaged too."""


def _loses(op: Any, program: Program) -> Deviation:
    """Return the deviation that a window average with NaN may be −∞; the stock flow accepts it for
    plain windows.
    """
    if pooling_of(op).node is not xnnpack.AveragePooling2d:
        return FLUSHED
    is_plain = isinstance(op, aten.AvgPool2dDefault) and not any(pooling_of(op).zeros)
    lost = Deviation("the average of a window with a NaN may be −∞", accepted=is_plain)
    return lost.unless(is_summable(op.operands[0], program)) or FLUSHED


def is_no_plane_mean(op: SchemaOp) -> bool:
    """Whether an op is a mean that is not over the planes of images."""
    return isinstance(op, aten.MeanDim) and not is_plane_mean(op)


@lowers(
    *POOLINGS,
    to="xnnpack",
    check="none",
    unless=is_no_plane_mean,
    bound=roundings("sums in another order"),
    deviation=_loses,
    name="lower-pooling",
    sample=("1x3x8x8xf32", [2, 2], [2, 2]),
)
def pooling(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Lower a pool to a channels-last node between transposes."""
    form, result = pooling_of(op), op.results[0].type
    if form.node in (xnnpack.MaxPooling2d, xnnpack.AveragePooling2d):
        no_refusal(may_be_empty(op, x.shape))
    image = to_nhwc(b, x.ssa)
    if any(form.zeros):
        amounts = [0, *form.zeros, 0]
        fields = {"pre_paddings": amounts, "post_paddings": amounts, "padding_value": 0.0}
        image = node(b, xnnpack.StaticConstantPad, image, **fields).ssa
    is_global = form.node is xnnpack.GlobalAveragePooling2d
    made = None if is_global else channels_last(result)
    y = node(b, form.node, image, result=made, **form.fields)
    return Value(to_nchw(b, y.ssa, result), b)


def pooling_of(op: SchemaOp) -> Pooling:
    """Match an op over images; windows that XNNPACK pools differently from PyTorch are refused."""
    no_refusal(not_for_xnnpack(op))
    shape = dims(op.operands[0].type)
    if len(shape) != 4:
        refuse("the input is not a batch of images")
    if isinstance(op, aten.MeanDim):
        return Pooling(xnnpack.GlobalAveragePooling2d, {"keep_dims": True})
    if op.name in RESIZES:
        return _resized(op)
    found = _adaptive(op) if "output_size" in op.SCHEMA.by_name else _windowed(op)
    if found.fields.get("kernel") == (1, 1):
        refuse("not every version of XNNPACK pools windows of one element; a slice computes them")
    return found


def _resized(op: SchemaOp) -> Pooling:
    size = dims(op.results[0].type)[2:]
    if any(isinstance(d, Size) for d in size):
        refuse("the resized image has a symbolic size; XNNPACK resizes to a constant one")
    corners = bool(op.arg("align_corners"))
    if not corners and not steps_by_sizes(op):
        refuse("the stated scale is not the ratio of the sizes, which XNNPACK uses")
    fields = {"new_size": size, "align_corners": corners}
    return Pooling(xnnpack.StaticResizeBilinear2d, fields)


def is_plane_mean(op: SchemaOp) -> bool:
    """Whether a mean is over height and width of images and does not change the dtype."""
    rank = len(dims(op.operands[0].type))
    axes = op.arg("dim")
    if rank != 4 or axes is None or op.arg("dtype") is not None:
        return False
    return sorted(a % 4 for a in axes) == [2, 3]


def _adaptive(op: SchemaOp) -> Pooling:
    rows, columns = dims(op.operands[0].type)[2:]
    out_rows, out_columns = dims(op.results[0].type)[2:]
    if (out_rows, out_columns) == (1, 1):
        return Pooling(xnnpack.GlobalAveragePooling2d, {"keep_dims": True})
    if isinstance(rows, Size) or isinstance(columns, Size):
        refuse("the image has a symbolic size, and so have its windows")
    assert isinstance(out_rows, int) and isinstance(out_columns, int)
    if rows % out_rows or columns % out_columns:
        refuse(f"{rows}×{columns} become {out_rows}×{out_columns}, in windows of several sizes")
    window = (rows // out_rows, columns // out_columns)
    return Pooling(xnnpack.AveragePooling2d, {"kernel": window, "stride": window})


def _windowed(op: SchemaOp) -> Pooling:
    """Match windows whose average XNNPACK computes: of the cells inside the image only."""
    if any(isinstance(d, Size) for d in dims(op.operands[0].type)[2:]) and may_miss_the_image(op):
        refuse("a size is symbolic, so the last window may be entirely in the padding")
    kernel, padding = tuple(op.arg("kernel_size")), tuple(op.arg("padding"))
    fields = {"kernel": kernel, "stride": tuple(op.arg("stride")) or kernel}
    if isinstance(op, aten.MaxPool2dDefault):
        fields |= {"padding": edges(op, padding), "dilation": tuple(op.arg("dilation"))}
        return Pooling(xnnpack.MaxPooling2d, fields)
    if op.arg("divisor_override") not in (None, kernel[0] * kernel[1]):
        refuse("divisor_override is not the window's size, which XNNPACK divides by")
    counted = (padding[0], padding[1]) if op.arg("count_include_pad") else (0, 0)
    rest = (padding[0] - counted[0], padding[1] - counted[1])
    padding_of_node = edges(op, rest)
    if any(padding_of_node) and op.arg("divisor_override") is not None:
        refuse(
            "divisor_override is set, but windows extend past the edge, where XNNPACK divides by fewer cells"
        )
    return Pooling(xnnpack.AveragePooling2d, {**fields, "padding": padding_of_node}, counted)


@lowers(
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest2d.vec",
    to="xnnpack",
    check="first",
    bound=EXACT,
    name="lower-nearest-resize",
    sample=("1x3x4x4xf32", [8, 4]),
)
def nearest_resize(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Lower nearest-neighbor upsampling: repeat pixels in rows, then rows, channels last."""
    result = op.results[0]
    given, result_dims = static_dims(x.ssa), static_dims(result)
    if given is None or result_dims is None:
        return _enlarged(x, op, b)
    down, across = given[2:], result_dims[2:]
    if any(new % old for old, new in zip(down, across, strict=True)):
        refuse(f"the scale {_size(down)} by {_size(across)} is not an integer factor")
    for at in (0, 1):
        if not repeats_evenly(down[at], across[at], stated_scale(op, at)):
            refuse("torch rounds the source positions of some pixels to neighboring pixels")
    batch, channels, rows, columns = given
    factors = (across[0] // down[0], across[1] // down[1])
    image = to_nhwc(b, x.ssa)
    image = _beside_itself(b, image, (batch, rows * columns, 1, channels), factors[1])
    columns *= factors[1]
    image = _beside_itself(b, image, (batch, rows, 1, columns * channels), factors[0])
    image = reshape(b, image, (batch, rows * factors[0], columns, channels))
    return Value(to_nchw(b, image, result.type), b)


def _enlarged(x: Value, op: Any, b: Rewriter) -> Value:
    """Upsample an image of dynamic size by a transposed convolution of each channel.

    Each pixel becomes a square. Squares do not overlap: each number is one product with 1, added to
    −0, which is exact.
    """
    result = op.results[0]
    sizes = [Size.of(size) for size in (*x.shape[2:], *dims(result.type)[2:])]
    factors = [new.exact_quotient(old) for old, new in zip(sizes[:2], sizes[2:], strict=True)]
    down, across = (None if factor is None else factor.number for factor in factors)
    channels = x.shape[1]
    if down is None or across is None or not isinstance(channels, int):
        refuse(
            "the image's size is symbolic, and the result's size is not an integer multiple of it"
        )
    scales = [stated_scale(op, at) for at in (0, 1)]
    if any(s is not None and s != factor for s, factor in zip(scales, (down, across), strict=True)):
        refuse("the stated scale is not the ratio of the sizes")
    if {down, across} - {1, 2, 4, 8}:
        refuse("torch rounds the source positions of some pixels to neighboring pixels")
    return _spread(x, torch.ones(channels, down, across, 1), result.type, op, b)


_SPREADS = Deviation("a channel that is infinite or NaN makes the pixels of its square NaN")


@lowers(
    "aten.pixel_shuffle.default",
    to="xnnpack",
    bound=Bound(0.0, 5e-324, "−0 becomes +0 beside a zero"),
    deviation=lambda op, program: _SPREADS.unless(is_finite(op.operands[0], program)),
    unless=lambda op: static_dims(op.results[0]) is not None,
    name="lower-pixel-shuffle",
    sample="""
        %y = aten.pixel_shuffle.default(%x, 2) : (tensor<1x8x?x3xf32, #stepwell.shape<[1, 8, "s", 3]>>) -> tensor<1x2x?x6xf32, #stepwell.shape<[1, 2, "2*s", 6]>>
    """,
)
def pixel_shuffle(x: Value, factor: int, *, op: Any, b: Rewriter) -> Value:
    """Lower a pixel shuffle of dynamic size to a transposed convolution.

    The filter is 1 at the position to which a channel moves, and 0 elsewhere. Images of static size
    are permuted instead.
    """
    result = op.results[0]
    channels = dims(result.type)[1]
    if x.rank != 4 or not isinstance(channels, int):
        refuse("the value is not a batch of images with a static number of channels")
    places = torch.eye(factor * factor).reshape(1, factor, factor, -1)
    return _spread(x, places.repeat(channels, 1, 1, 1), result.type, op, b)


def _spread(x: Value, filter_: torch.Tensor, result: Attribute, op: Any, b: Rewriter) -> Value:
    """Map each pixel to a separate square by a filter `[channels, height, width, inputs]`."""
    if x.dtype != f32:
        refuse("XNNPACK has transposed convolutions only in float32")
    channels, *square = filter_.shape[:3]
    no_refusal(may_be_empty(op, x.shape))
    y = node(
        b,
        xnnpack.Deconvolution2d,
        to_nhwc(b, x.ssa),
        b.constant(filter_, "squares"),
        b.constant(torch.full((channels,), -0.0), "nothing"),
        result=channels_last(result),
        stride=tuple(square),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=channels,
        adjustment=(0, 0),
    )
    return Value(to_nchw(b, y.ssa, result), b)


@lowers(
    "aten.slice.Tensor",
    to="xnnpack",
    bound=Bound(0.0, 5e-324, "−0 may become +0"),
    unless=lambda op: _cropped(op) is None,
    name="lower-crop",
    sample="""
        %z = aten.sigmoid.default(%x) : (tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>) -> tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>
        %y = aten.slice.Tensor(%z, 1, 1, -2, 1) : (tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>) -> tensor<2x?x3xf32, #stepwell.shape<[2, "s - 3", 3]>>
    """,
)
def crop(x: Value, dim: int, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Lower a slice that drops rows from the end of a dynamic axis: a 1×1 transposed
    convolution whose padding removes rows. Each number is one product with 1, plus −0.
    """
    found = _cropped(op)
    assert found is not None
    if x.dtype != f32:
        refuse("XNNPACK has transposed convolutions only in float32")
    if isinstance(x.owner, Block):
        refuse("the input is cropped by a kernel, before the delegate")
    at, shape, order = dim % x.rank, x.shape, list(range(x.rank))
    no_refusal(may_cut_all(op, out.shape[at]))
    if is_open_once(shape):
        sizes = (settled(prod(shape[:at])), shape[at], settled(prod(shape[at + 1 :])), 1)
        at = 1
    elif x.rank == 3 and at:
        sizes = (*shape, 1)
    elif x.rank == 4 and at:
        if isinstance(shape[3], Size):
            order = [0, 2, 3, 1]
        at, sizes = order.index(at), [shape[axis] for axis in order]
    else:
        refuse("several sizes are symbolic, and the rank is not 3 or 4")
    if at == 3 or isinstance(channels := sizes[3], Size):
        refuse("the number of channels is symbolic")
    made = [*sizes[:at], settled(Size.of(sizes[at]) - sum(found)), *sizes[at + 1 :]]
    y = node(
        b,
        xnnpack.Deconvolution2d,
        x.permute(order).view(*sizes).ssa,
        b.constant(torch.ones(channels, 1, 1, 1), "one"),
        b.constant(torch.full((channels,), -0.0), "nothing"),
        result=tensor(made, f32),
        stride=(1, 1),
        padding=(found[0], 0, found[1], 0) if at == 1 else (0, found[1], 0, found[0]),
        dilation=(1, 1),
        groups=channels,
        adjustment=(0, 0),
    )
    if order != sorted(order):
        y = y.permute([0, 3, 1, 2])
    return y.view(*out.shape)


def _cropped(op: Any) -> tuple[int, int] | None:
    """Return the numbers of rows that a slice drops at the start and at the end of a dynamic axis,
    if it drops some at the end.
    """
    start, end = op.arg("start") or 0, op.arg("end")
    if not (isinstance(start, int) and isinstance(end, int) and op.arg("step") == 1):
        return None
    at, shape = op.arg("dim"), dims(op.operands[0].type)
    if start < 0 or end >= 0 or not isinstance(shape[at], Size):
        return None
    is_exact = shape[at] - start + end == dims(op.results[0].type)[at]
    return (start, -end) if is_exact else None


def _beside_itself(rw: Rewriter, value: SSAValue, shape: tuple[int, ...], factor: int) -> SSAValue:
    if factor == 1:
        return value
    return concatenate(rw, [reshape(rw, value, shape)] * factor, 2)


@cache
def repeats_evenly(size: int, new_size: int, scale: float | None) -> bool:
    """Whether PyTorch, which rounds in f32, selects pixel `i // factor` for each i."""
    line = torch.arange(size, dtype=torch.float32).reshape(1, 1, 1, size)
    picked = torch.ops.aten.upsample_nearest2d.default(line, [1, new_size], None, scale)
    return bool(torch.equal(picked, line.repeat_interleave(new_size // size, 3)))


def _size(pair: tuple[int, ...]) -> str:
    return "×".join(map(str, pair))


RULES = lowerings_of(__name__)
