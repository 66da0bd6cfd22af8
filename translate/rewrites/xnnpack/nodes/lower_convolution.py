"""Convolutions of images: NHWC nodes between transposes, weights laid out anew at compile time.

XNNPACK keeps channels last. Each convolution is lowered on its own here; `assign_layouts` then
moves the transposes to where they cost least, most of them against each other. One-dimensional
convolutions run as images of height one.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x3x3xf32>
    %y = aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
After:
    %0 = stepwell.weight <"w#filter_ohwi.614511dd59f1"> "constant" : tensor<4x3x3x3xf32>
    %1 = xnnpack.static_transpose(%x, perm=[0, 2, 3, 1]) : (tensor<1x3x8x8xf32>) -> tensor<1x8x8x3xf32>
    %2 = xnnpack.convolution_2d(%1, %0, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1]) : (tensor<1x8x8x3xf32>, tensor<4x3x3x3xf32>) -> tensor<1x8x8x4xf32>
    %y = xnnpack.static_transpose(%2, perm=[0, 3, 1, 2]) : (tensor<1x8x8x4xf32>) -> tensor<1x4x8x8xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f16
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import AnyTensor, Dim, dims, element, tensor
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    not_constant,
    not_for_xnnpack,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc


@recipe("filter_ohwi", "of the first")
def filter_ohwi(weight: torch.Tensor) -> torch.Tensor:
    """`[out, in/groups, h, w]` to `[out, h, w, in/groups]`."""
    return weight.permute(0, 2, 3, 1).contiguous()


@recipe("filter_depthwise")
def filter_depthwise(weight: torch.Tensor) -> torch.Tensor:
    """`[out, 1, h, w]` to `[1, h, w, out]`."""
    return weight.permute(1, 2, 3, 0).contiguous()


@recipe("filter_transposed")
def filter_transposed(weight: torch.Tensor, *, groups: int) -> torch.Tensor:
    """`[in, out/groups, h, w]` of a transposed convolution to `[out, h, w, in/groups]`."""
    inputs, outputs, height, width = weight.shape
    split = weight.reshape(groups, inputs // groups, outputs, height, width)
    return split.permute(0, 2, 3, 4, 1).reshape(groups * outputs, height, width, -1).contiguous()


@recipe("unsqueeze")
def unsqueeze(tensor: torch.Tensor, *, axis: int) -> torch.Tensor:
    """A tensor with one more axis of size one."""
    return tensor.unsqueeze(axis)


@dataclass(frozen=True)
class Convolution:
    """A convolution of `[N, C, H, W]` or `[N, C, W]` with a constant filter."""

    op: SchemaOp
    node: type[XnnpackOp]
    weight: str
    recipe: str
    groups: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    output_padding: tuple[int, int]
    is_line: bool


@dataclass(frozen=True)
class LowerConvolution(Rewrite[Convolution]):
    """`aten.convolution` to `xnnpack.{convolution_2d,depthwise_convolution_2d,deconvolution_2d}`."""

    name: ClassVar[str] = "lower-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = roundings("sums in another order")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Convolution | Refusal | None:
        """Guards: float images, constant filter and bias, forms that XNNPACK has."""
        rank = len(dims(op.operands[0].type))
        weight = weight_key(op.operands[1])
        for refusal in (
            not_for_xnnpack(op),
            not_an_image(rank),
            not_a_known_line(op.operands[0], op.results[0]),
            not_constant(op.operands[1], "filter"),
            not_constant(op.operand("bias"), "bias"),
        ):
            if refusal is not None:
                return refusal
        assert weight is not None
        return form_of(op, weight)

    def build(self, match: Convolution, rw: Rewriter) -> None:
        """Channels last, the node, channels second."""
        op = match.op
        result = op.results[0]
        value = to_nhwc(rw, op.operands[0])
        key = laid_out(match, rw.weights)
        bias = op.operand("bias")
        operands = [value, rw.weight(key), *([bias] if bias is not None else [])]
        made = channels_last(result.type)
        new = match.node.make(*operands, result=made, **fields_of(match))
        rw.insert(new)
        rw.replace(op, [to_nchw(rw, new.output, result.type)])


def form_of(op: SchemaOp, weight: str) -> Convolution | Refusal:
    """The node for a convolution of images or lines whose filter is the constant `weight`."""
    rank = len(dims(op.operands[0].type))
    groups = op.arg("groups")
    filters = dims(op.operands[1].type)
    inputs = dims(op.operands[0].type)[1]
    node, layout = xnnpack.Convolution2d, "filter_ohwi"
    if op.arg("transposed"):
        refusal = not_a_deconvolution(op)
        if refusal is not None:
            return refusal
        node, layout = xnnpack.Deconvolution2d, "filter_transposed"
    elif 1 < groups == inputs and filters[1] == 1:
        node, layout = xnnpack.DepthwiseConvolution2d, "filter_depthwise"
    is_line = rank == 3
    return Convolution(
        op,
        node,
        weight,
        layout,
        groups,
        _pair(op.arg("stride"), 1, is_line),
        _pair(op.arg("padding"), 0, is_line),
        _pair(op.arg("dilation"), 1, is_line),
        _pair(op.arg("output_padding"), 0, is_line),
        is_line,
    )


def laid_out(match: Convolution, store: WeightStore) -> str:
    """The filter in the node's order of axes."""
    key = match.weight
    if match.is_line:
        key = store.derive("unsqueeze", [key], axis=2)
    if match.recipe == "filter_transposed":
        return store.derive(match.recipe, [key], groups=match.groups)
    if match.recipe == "filter_ohwi":
        return in_channels_last(store, key)
    return store.derive(match.recipe, [key])


def in_channels_last(store: WeightStore, key: str) -> str:
    """A filter as `filter_ohwi` lays it out.

    One whose output channels were scaled is scaled while it is read in the new order: the same
    numbers, written once instead of twice.
    """
    made = store.recipe_of(key)
    if made is None or made[0] != "scale-output-channels" or made[2]["transposed_groups"]:
        return store.derive("filter_ohwi", [key])
    recipe_name, (kernel, *statistics), parameters = made
    view = store.derive("transpose", [kernel], order=[0, 2, 3, 1])
    return store.derive(recipe_name, [view, *statistics], **parameters)


def fields_of(match: Convolution) -> dict[str, Any]:
    """The node's fields."""
    rows, columns = match.padding
    fields: dict[str, Any] = {
        "stride": match.stride,
        "padding": (rows, columns, rows, columns),
        "dilation": match.dilation,
    }
    if match.node is not xnnpack.DepthwiseConvolution2d:
        fields["groups"] = match.groups
    if match.node is xnnpack.Deconvolution2d:
        fields["adjustment"] = match.output_padding
    return fields


def _pair(numbers: list[int], line: int, is_line: bool) -> tuple[int, int]:
    if is_line:
        return line, numbers[0]
    first, *rest = numbers
    return first, rest[0] if rest else first


def not_an_image(rank: int) -> Refusal | None:
    """A batch of images or of lines."""
    if rank in (3, 4):
        return None
    return Refusal(f"the input has rank {rank}; XNNPACK convolves batches of images or lines")


def channels_last(type_: Attribute) -> AnyTensor:
    """The type `[N, H, W, C]` of images `[N, C, H, W]`, or of lines `[N, C, W]` of height one."""
    batch, channels, *space = dims(type_)
    height, width = space if len(space) == 2 else (1, *space)
    return tensor([batch, height, width, channels], element(type_))


def not_a_known_line(*values: SSAValue) -> Refusal | None:
    """Lines become images by a reshape, and XNNPACK works out one size of its result."""
    for value in values:
        shape: tuple[Dim, ...] = dims(value.type)
        if len(shape) == 3 and isinstance(shape[0], Size) and isinstance(shape[2], Size):
            return Refusal("the batch of lines and their length are symbolic")
    return None


def not_a_deconvolution(op: SchemaOp) -> Refusal | None:
    """A transposed convolution with a form that the node has."""
    if element(op.operands[0].type) == f16:
        return Refusal("XNNPACK has no transposed convolution in float16")
    return None
