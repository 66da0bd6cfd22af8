"""Strength reduction: convolutions whose windows tile the image become linear layers over patches.

A vision transformer's first layer (kernel 16, stride 16) reads every pixel once. XNNPACK runs it by
gathering one pixel, three channels, at a time. A matrix product of patches, which a transpose lays
out, takes 0.3 to 0.7 of the time (float32, any number of channels; `docs/xnnpack.md`). The int8
kernel pads channels to eight, so the rewrite gains below eight channels and loses above. An image
in torch's order is laid out as patches at once, instead of channels last first. A dynamically
quantized image becomes dynamically quantized rows, with steps no greater.
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import quantization
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.datatypes import FLOATS, DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Rewriter
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import node
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import clamps_of, reshape, transpose
from stepwell.translate.rewrites.xnnpack.quantized.quantized import typed_constant
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import finer_tokens

TO_NHWC = (0, 2, 3, 1)
PADDED_CHANNELS = 8
"""XNNPACK's int8 kernels for x86 and Arm read channels in groups of eight."""
SUMS = roundings("sums in another order")


@recipe("filter_rows", "of the first")
def filter_rows(weight: torch.Tensor, *, channels_first: bool) -> torch.Tensor:
    """Turn `[out, h, w, in]` into a row for each output, over (in, h, w) or (h, w, in)."""
    ordered = weight.permute(0, 3, 1, 2) if channels_first else weight
    return ordered.reshape(weight.shape[0], -1).contiguous()


def _bound(op: Convolution2d, value: RunTime) -> Bound:
    """Return the error bound of a convolution as a linear layer: exact for integers; for dynamic
    int8, rows have finer quantization steps than their image.
    """
    held = quantization(op.filter.type)
    if datatype(op.input.type) == "qdint8":
        assert held is not None
        return finer_tokens(value(op.input), value(op.filter), held)
    return SUMS if quantization(op.input.type) is None else EXACT


@lowers(
    "xnnpack.convolution_2d",
    to="aten",
    bound=SUMS,
    error_bound=_bound,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<5x2x2x3xf32>
    %i = xnnpack.static_transpose(%x, perm=[0, 2, 3, 1]) : (tensor<1x3x4x4xf32>) -> tensor<1x4x4x3xf32>
    %y = xnnpack.convolution_2d(%i, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x4x4x3xf32>, tensor<5x2x2x3xf32>) -> tensor<1x2x2x5xf32>
    """,
)
def patches_to_linear(*, op: Convolution2d, b: Rewriter) -> Value | None:
    """Replace a convolution whose stride equals its kernel by a linear layer over patches."""
    weight = constant_of(op.filter)
    assert weight is not None, "filters are constants"
    if op.window == (1, 1) or op.pair("stride") != op.window:
        return None
    if any(op.paddings) or op.pair("dilation") != (1, 1) or op.integer("groups", 1) != 1:
        return None
    shape = dims(op.input.type)
    if not all(isinstance(size, int) for size in shape):
        refuse("the shape of the image is symbolic")
    _, height, width, channels = cast(tuple[int, ...], shape)
    if height % op.window[0] or width % op.window[1]:
        refuse("the windows leave rows or columns of the image out")
    if datatype(op.input.type) not in FLOATS and channels >= PADDED_CHANNELS:
        refuse("the int8 convolution is as fast from eight channels on")
    image, is_dynamic = op.input, datatype(op.input.type) == "qdint8"
    if is_dynamic:
        if not image.has_one_use():
            refuse("other ops also read the image's integers")
        assert isinstance(image.owner, xnnpack.Convert), "nothing else makes such values"
        image = image.owner.input
    maker, channels_first = image.owner, False
    if isinstance(maker, xnnpack.StaticTranspose) and maker.ints("perm") == TO_NHWC:
        image, channels_first = maker.input, True
    key = b.weights.derive("filter_rows", [weight.key.data], channels_first=channels_first)
    rows = _rows(op, image, channels_first, b)
    if is_dynamic:
        rows = node(b, xnnpack.Convert, rows, element=DynamicInt8Type(1)).ssa
    held = quantization(op.filter.type)
    filter_ = b.weight(key) if held is None else typed_constant(b, key, held)
    fields = {"result": op.result.type, **clamps_of(op)}
    return node(b, xnnpack.FullyConnected, rows, filter_, *op.operands[2:], **fields)


def _rows(op: Convolution2d, image: SSAValue, channels_first: bool, b: Rewriter) -> SSAValue:
    """Build `[N, H / h, W / w, inputs · h · w]`: each patch as one row."""
    count, height, width, channels = cast(tuple[int, ...], dims(op.input.type))
    rows, columns = op.window
    down, across = height // rows, width // columns
    if channels_first:
        apart = (count, channels, down, rows, across, columns)
        order = [0, 2, 4, 1, 3, 5]
    else:
        apart = (count, down, rows, across, columns * channels)
        order = [0, 1, 3, 2, 4]
    image = transpose(b, reshape(b, image, apart), order)
    return reshape(b, image, (count, down, across, rows * columns * channels))


RULES = lowerings_of(__name__)
