"""Strength reduction: convolutions whose windows tile the image become linear layers over patches.

A vision transformer's first layer (kernel 16, stride 16) reads every pixel once. XNNPACK runs it by
gathering one pixel, three channels, at a time. A matrix product of patches, which a transpose lays
out, takes 0.3 to 0.7 of the time (float32, any number of channels; `docs/xnnpack.md`). The int8
kernel pads channels to eight, so the rewrite gains below eight channels and loses above. An image
in torch's order is laid out as patches at once, instead of channels last first. A dynamically
quantized image becomes dynamically quantized rows, with steps no greater.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x2x2x3xf32>
    %i = xnnpack.static_transpose(%x, perm=[0, 2, 3, 1]) : (tensor<1x3x4x4xf32>) -> tensor<1x4x4x3xf32>
    %y = xnnpack.convolution_2d(%i, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (tensor<1x4x4x3xf32>, tensor<5x2x2x3xf32>) -> tensor<1x2x2x5xf32>
After:
    %w = stepwell.weight <"w#filter_rows"> "constant" : tensor<5x12xf32>
    %0 = xnnpack.static_reshape(%x, new_shape=[1, 3, 2, 2, 2, 2]) : (tensor<1x3x4x4xf32>) -> tensor<1x3x2x2x2x2xf32>
    %1 = xnnpack.static_transpose(%0, perm=[0, 2, 4, 1, 3, 5]) : (tensor<1x3x2x2x2x2xf32>) -> tensor<1x2x2x3x2x2xf32>
    %2 = xnnpack.static_reshape(%1, new_shape=[1, 2, 2, 12]) : (tensor<1x2x2x3x2x2xf32>) -> tensor<1x2x2x12xf32>
    %y = xnnpack.fully_connected(%2, %w) : (tensor<1x2x2x12xf32>, tensor<5x12xf32>) -> tensor<1x2x2x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import quantization
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.datatypes import FLOATS, DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import reshape, transpose
from stepwell.translate.rewrites.xnnpack.quantized.quantized import typed_constant
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import finer_tokens

TO_NHWC = (0, 2, 3, 1)
PADDED_CHANNELS = 8
"""XNNPACK's int8 kernels for x86 and Arm read channels in groups of eight."""


@recipe("filter_rows", "of the first")
def filter_rows(weight: torch.Tensor, *, channels_first: bool) -> torch.Tensor:
    """Turn `[out, h, w, in]` into a row for each output, over (in, h, w) or (h, w, in)."""
    ordered = weight.permute(0, 3, 1, 2) if channels_first else weight
    return ordered.reshape(weight.shape[0], -1).contiguous()


@dataclass(frozen=True)
class Patches:
    """A convolution over the patches of an image in torch's order or channels last."""

    op: Convolution2d
    image: SSAValue
    channels_first: bool
    weight: str
    is_dynamic: bool


@dataclass(frozen=True)
class PatchesToLinear(Rewrite[Patches]):
    """`convolution_2d` with stride = kernel to reshape, transpose, reshape, `fully_connected`."""

    name: ClassVar[str] = "patches-to-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (Convolution2d,)
    bound: ClassVar[Bound] = roundings("sums in another order")

    def match(self, op: Convolution2d, program: Program) -> Patches | Refusal | None:
        """Guards: windows that tile the image, known sizes, a kernel that is slower."""
        weight = constant_of(op.filter)
        assert weight is not None, "filters are constants"
        if op.window == (1, 1) or op.pair("stride") != op.window:
            return None
        if any(op.paddings) or op.pair("dilation") != (1, 1) or op.integer("groups", 1) != 1:
            return None
        shape = dims(op.input.type)
        if not all(isinstance(size, int) for size in shape):
            return Refusal("the shape of the image is symbolic")
        _, height, width, channels = cast(tuple[int, ...], shape)
        if height % op.window[0] or width % op.window[1]:
            return Refusal("the windows leave rows or columns of the image out")
        if datatype(op.input.type) not in FLOATS and channels >= PADDED_CHANNELS:
            return Refusal("the int8 convolution is as fast from eight channels on")
        image, is_dynamic = op.input, datatype(op.input.type) == "qdint8"
        if is_dynamic:
            if not image.has_one_use():
                return Refusal("the image's integers are read by others too")
            assert isinstance(image.owner, xnnpack.Convert), "nothing else makes such values"
            image = image.owner.input
        maker = image.owner
        if isinstance(maker, xnnpack.StaticTranspose) and maker.ints("perm") == TO_NHWC:
            return Patches(op, maker.input, True, weight.key.data, is_dynamic)
        return Patches(op, image, False, weight.key.data, is_dynamic)

    def bound_at(self, match: Patches, value: Value) -> Bound:
        """Sums of integers are the same in any order; rows have finer steps than their image."""
        if match.is_dynamic:
            filter_quantization = quantization(match.op.filter.type)
            assert filter_quantization is not None
            return finer_tokens(value(match.op.input), value(match.op.filter), filter_quantization)
        return self.bound if quantization(match.op.input.type) is None else EXACT

    def build(self, match: Patches, rw: Rewriter) -> None:
        """Build a row for each patch, and the layer from rows to outputs."""
        op = match.op
        key = rw.weights.derive("filter_rows", [match.weight], channels_first=match.channels_first)
        filter_quantization = quantization(op.filter.type)
        rows = _rows(match, rw)
        if match.is_dynamic:
            rows = rw.insert(xnnpack.Convert.make(rows, element=DynamicInt8Type(1))).results[0]
        node = xnnpack.FullyConnected.make(
            rows,
            rw.weight(key)
            if filter_quantization is None
            else typed_constant(rw, key, filter_quantization),
            *op.operands[2:],
            result=op.result.type,
        )
        for name in ("output_min", "output_max"):
            if name in op.properties:
                node.properties[name] = op.properties[name]
        rw.replace(op, [rw.insert(node).results[0]])


def _rows(match: Patches, rw: Rewriter) -> SSAValue:
    """Build `[N, H / h, W / w, inputs · h · w]`: each patch as one row."""
    count, height, width, channels = cast(tuple[int, ...], dims(match.op.input.type))
    rows, columns = match.op.window
    down, across = height // rows, width // columns
    if match.channels_first:
        apart = (count, channels, down, rows, across, columns)
        order = [0, 2, 4, 1, 3, 5]
    else:
        apart = (count, down, rows, across, columns * channels)
        order = [0, 1, 3, 2, 4]
    image = transpose(rw, reshape(rw, match.image, apart), order)
    return reshape(rw, image, (count, down, across, rows * columns * channels))
