"""Lower 2-D convolutions to NHWC nodes between transposes, with filters in another layout.

XNNPACK is channels-last. Here each convolution is lowered separately. The pass `assign_layouts`
then moves the transposes to where they cost least, so that most of them cancel. One-dimensional
convolutions run as images of height one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f16
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import flushed, node
from stepwell.translate.rewrites.xnnpack.nodes.guards import may_be_empty, not_constant
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import to_nchw, to_nhwc
from stepwell.translate.rewrites.xnnpack.nodes.windows import channels_last


@recipe("filter_ohwi", "of the first")
def filter_ohwi(weight: torch.Tensor) -> torch.Tensor:
    """Permute `[out, in/groups, h, w]` to `[out, h, w, in/groups]`."""
    return weight.permute(0, 2, 3, 1).contiguous()


@recipe("filter_depthwise")
def filter_depthwise(weight: torch.Tensor) -> torch.Tensor:
    """Permute `[out, 1, h, w]` to `[1, h, w, out]`."""
    return weight.permute(1, 2, 3, 0).contiguous()


@recipe("filter_transposed")
def filter_transposed(weight: torch.Tensor, *, groups: int) -> torch.Tensor:
    """Permute `[in, out/groups, h, w]` of a transposed convolution to `[out, h, w, in/groups]`."""
    inputs, outputs, height, width = weight.shape
    split = weight.reshape(groups, inputs // groups, outputs, height, width)
    return split.permute(0, 2, 3, 4, 1).reshape(groups * outputs, height, width, -1).contiguous()


@recipe("unsqueeze")
def unsqueeze(tensor: torch.Tensor, *, axis: int) -> torch.Tensor:
    """Return a tensor with one more axis of size one."""
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


@lowers(
    "aten.convolution.default",
    to="xnnpack",
    bound=roundings("sums in another order"),
    deviation=flushed,
    name="lower-convolution",
    sample="""
        %w = stepwell.weight <"w"> "parameter" : tensor<4x3x3x3xf32>
        %y = aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
    """,
)
def convolution(x: Value, weight: Value, bias: Value | None, *, op: Any, b: Rewriter) -> Value:
    """Lower to an NHWC `{convolution_2d,depthwise_convolution_2d,deconvolution_2d}`."""
    needs_images(x.ssa, op.results[0])
    no_refusal(may_be_empty(op, x.shape))
    no_refusal(not_constant(weight.ssa, "filter"))
    no_refusal(not_constant(op.operand("bias"), "bias"))
    key = weight_key(weight.ssa)
    assert key is not None
    form, result_type = form_of(op, key), op.results[0].type
    image = to_nhwc(b, x.ssa)
    filter_ = b.weight(laid_out(form, b.weights))
    fields = {"result": channels_last(result_type), **fields_of(form)}
    y = node(b, form.node, image, filter_, op.operand("bias"), **fields)
    return Value(to_nchw(b, y.ssa, result_type), b)


def form_of(op: SchemaOp, weight: str) -> Convolution:
    """Match a convolution of images or lines whose filter is the constant `weight`."""
    rank = len(dims(op.operands[0].type))
    groups = op.arg("groups")
    filters = dims(op.operands[1].type)
    inputs = dims(op.operands[0].type)[1]
    node, layout = xnnpack.Convolution2d, "filter_ohwi"
    if op.arg("transposed"):
        if element(op.operands[0].type) == f16:
            refuse("XNNPACK has no transposed convolution in float16")
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
    """Return the key of the filter in the node's axis order."""
    key = match.weight
    if match.is_line:
        key = store.derive("unsqueeze", [key], axis=2)
    if match.recipe == "filter_transposed":
        return store.derive(match.recipe, [key], groups=match.groups)
    if match.recipe == "filter_ohwi":
        return in_channels_last(store, key)
    return store.derive(match.recipe, [key])


def in_channels_last(store: WeightStore, key: str) -> str:
    """Return the key of a filter in the layout of `filter_ohwi`.

    If the filter is derived by scaling its output channels, the scaling is applied to the permuted
    filter, so that only one large weight is written.
    """
    made = store.recipe_of(key)
    if made is None or made[0] != "scale-output-channels" or made[2]["transposed_groups"]:
        return store.derive("filter_ohwi", [key])
    recipe_name, (kernel, *statistics), parameters = made
    view = store.derive("transpose", [kernel], order=[0, 2, 3, 1])
    return store.derive(recipe_name, [view, *statistics], **parameters)


def fields_of(match: Convolution) -> dict[str, Any]:
    """Return the fields of XNNPACK's convolution node."""
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


def needs_images(given: SSAValue, made: SSAValue) -> None:
    """Refuse operands that are not batches of images or lines.

    Lines become images by a reshape, and XNNPACK infers only one size of a reshape.
    """
    rank = len(dims(given.type))
    if rank not in (3, 4):
        refuse(f"the input has rank {rank}; XNNPACK convolves batches of images or lines")


RULES = lowerings_of(__name__)
