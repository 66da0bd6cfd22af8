"""Lowerings of products, convolutions, pools, norms, reductions, resizes and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stepwell.integrations.openvino.lowerings.values import ROUNDED, Value, loses_nan
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import i1, i64
from stepwell.ir.sizes.size import Dim, Size
from stepwell.ir.types import with_element
from stepwell.translate.lowerings.lowering import (
    Out,
    known,
    lowerings_of,
    lowers,
    no_refusal,
    refuse,
)
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.rewrites.attention.arguments import drops_out, query_group, scale_of

# -- products --------------------------------------------------------------------------------


@lowers("aten.linear.default", to="openvino", sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %y = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    """)  # fmt: skip
def linear(x: Value, weight: Value, bias: Value | None, *, out: Out) -> Value:
    """Lower to a product with the transposed weight, and a sum."""
    y = x.op("MatMul", weight, shape=out.shape, transpose_a=False, transpose_b=True)
    return y if bias is None else y + bias


@lowers(
    "aten.mm.default", "aten.bmm.default", "aten.matmul.default", to="openvino",
    sample=("2x3x4xf32", "2x4x5xf32"), name="lower-product-to-openvino",
)  # fmt: skip
def matmul(x: Value, other: Value, *, out: Out) -> Value:
    """Lower to a product; leading axes broadcast."""
    return x.op("MatMul", other, shape=out.shape, transpose_a=False, transpose_b=False)


@lowers("aten.addmm.default", "aten.baddbmm.default", to="openvino",
        sample=("2x5xf32", "2x4xf32", "4x5xf32"))  # fmt: skip
def sum_of_product(added: Value, x: Value, other: Value, *, op: Any, out: Out) -> Value:
    """Lower to a product and a sum, without factors."""
    if op.arg("alpha") != 1 or op.arg("beta") != 1:
        refuse("the product or the sum has a factor")
    y = x.op("MatMul", other, shape=out.shape, transpose_a=False, transpose_b=False)
    return y + added


@lowers(
    "aten.convolution.default", to="openvino",
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4x2x2xf32>
    %y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (
    tensor<1x4x5x5xf32>, tensor<3x4x2x2xf32>) -> tensor<1x3x4x4xf32>
    """,
)  # fmt: skip
def convolution(x: Value, weight: Value, bias: Value | None, *, op: Any, out: Out) -> Value:
    """Lower to (Group)Convolution, or to (Group)ConvolutionBackpropData if it is transposed."""
    if not weight.is_constant:
        refuse("the filter is computed at run time")
    space, groups = weight.rank - 2, op.arg("groups")
    if x.rank != weight.rank:
        refuse("the image has no batch")

    def each(name: str) -> list[int]:
        stated = [known(n, name) for n in op.arg(name)]
        return stated * space if len(stated) == 1 else stated

    padding = each("padding")
    fields: dict[str, Any] = {
        "strides": each("stride"),
        "pads_begin": padding,
        "pads_end": padding,
        "dilations": each("dilation"),
        "auto_pad": "explicit",
    }
    name = "Convolution"
    if op.arg("transposed"):
        name, fields = f"{name}BackpropData", {**fields, "output_padding": each("output_padding")}
    if groups > 1:
        name = f"Group{name}"
        first, *rest = weight.shape
        weight = weight.reshape(groups, first // groups, *rest)
    y = x.op(name, weight, shape=out.shape, **fields)
    return y if bias is None else y + bias.reshape(1, *bias.shape, *[1] * space)


# -- pools, resizes --------------------------------------------------------------------------


def _window(op: Any, name: str, space: int) -> list[int]:
    stated = op.arg(name)
    if name == "stride" and not stated:
        stated = op.arg("kernel_size")
    listed = stated if isinstance(stated, list) else [stated]
    numbers = [known(n, name) for n in listed]
    return numbers * space if len(numbers) == 1 else numbers


def _windows(op: Any, space: int) -> dict[str, Any]:
    padding = _window(op, "padding", space)
    return {
        "kernel": _window(op, "kernel_size", space),
        "strides": _window(op, "stride", space),
        "pads_begin": padding,
        "pads_end": padding,
        "rounding_type": "ceil_torch" if op.arg("ceil_mode") else "floor",
        "auto_pad": "explicit",
    }


def loses_specials(op: Any, program: Any) -> Deviation | None:
    """Return the deviation of a maximum pool."""
    lost = Deviation(
        "a NaN becomes a number, and −∞ in a whole window the least number, as in every flow to "
        "OpenVINO",
        accepted=True,
    )
    return lost.unless(is_finite(op.operands[0], program))


@lowers(
    {f"aten.{name}.default": space for name, space in
     (("max_pool1d", 1), ("max_pool2d", 2), ("max_pool3d", 3))},
    {"aten.max_pool2d_with_indices.default": 2},
    to="openvino", deviation=loses_specials, sample=("1x2x4x4xf32", [2, 2]),
)  # fmt: skip
def max_pool(x: Value, *, form: int, op: Any) -> Any:
    """Lower to MaxPool of images with a batch."""
    if x.rank != form + 2:
        refuse("the image has no batch")
    if len(op.results) > 1 and op.results[1].uses:
        refuse("the places of the maxima are used")
    fields = {**_windows(op, form), "dilations": _window(op, "dilation", form)}
    types = [op.results[0].type, with_element(op.results[0].type, i64)]
    more = {"index_element_type": "i64", "axis": 0}
    values, _ = x.results("MaxPool", types=types, **fields, **more)
    return values if len(op.results) == 1 else (values, None)


@lowers(
    {f"aten.avg_pool{space}d.default": space for space in (1, 2, 3)},
    to="openvino", sample=("1x2x4x4xf32", [2, 2]),
)  # fmt: skip
def average_pool(x: Value, *, form: int, op: Any, out: Out) -> Value:
    """Lower to AvgPool of images with a batch."""
    if x.rank != form + 2:
        refuse("the image has no batch")
    if form > 1 and op.arg("divisor_override") is not None:
        refuse("the divisor is stated")
    counts, windows = bool(op.arg("count_include_pad")), _windows(op, form)
    if counts and op.arg("ceil_mode"):
        names = ("pads_begin", "kernel", "strides")
        for size, pad, kernel, stride in zip(
            x.shape[2:], *(windows[n] for n in names), strict=True
        ):
            if isinstance(size, Size) or (size + 2 * pad - kernel) % stride:
                refuse("OpenVINO divides the last windows of a size that is rounded up by less")
    fields: dict[str, Any] = {**windows, "exclude-pad": not counts}
    return x.op("AvgPool", shape=out.shape, **fields)


@lowers(
    *(f"aten.{'_' * private}adaptive_avg_pool{space}d.default"
      for space, private in ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1))),
    to="openvino", sample=("1x2x5x5xf32", [2, 2]),
)  # fmt: skip
def adaptive_pool(x: Value, size: Sequence[int], *, out: Out) -> Value:
    """Lower to AdaptiveAvgPool of images with a batch."""
    space = len(size)
    if x.rank != space + 2 or not all(isinstance(n, int) for n in out.shape[2:]):
        refuse("the image has no batch, or the result's size is symbolic")
    return x.op("AdaptiveAvgPool", list(out.shape[2:]), shape=out.shape)


RESIZES = {
    f"aten.{name}.{overload}": mode
    for name, mode in (
        ("upsample_nearest1d", "nearest"),
        ("upsample_nearest2d", "nearest"),
        ("upsample_nearest3d", "nearest"),
        ("upsample_linear1d", "linear_onnx"),
        ("upsample_bilinear2d", "linear_onnx"),
        ("upsample_trilinear3d", "linear_onnx"),
        ("upsample_bicubic2d", "cubic"),
    )
    for overload in ("default", "vec")
}


@lowers(RESIZES, to="openvino", sample=("1x2x3x3xf32", [6, 6]))
def resize(x: Value, *, form: str, op: Any, out: Out) -> Value:
    """Lower to Interpolate to the result's sizes, which agree with a stated scale."""
    space = x.rank - 2
    if any(isinstance(size, Size) for size in (*x.shape[2:], *out.shape[2:])):
        refuse("the size of the image is symbolic")
    for size, wanted, scale in zip(x.shape[2:], out.shape[2:], _scales(op, space), strict=True):
        if scale is not None and size * scale != wanted:
            refuse(f"{size} elements times scale {scale} are not {wanted}")
    corners = form != "nearest" and bool(op.arg("align_corners"))
    places = "align_corners" if corners else "asymmetric" if form == "nearest" else "half_pixel"
    return x.op(
        "Interpolate",
        list(out.shape[2:]),
        list(range(2, x.rank)),
        shape=out.shape,
        mode=form,
        shape_calculation_mode="sizes",
        coordinate_transformation_mode=places,
        nearest_mode="floor",
        antialias=False,
        pads_begin=[0] * x.rank,
        pads_end=[0] * x.rank,
        cube_coeff=-0.75,
    )


def _scales(op: Any, space: int) -> Sequence[float | None]:
    if "scale_factors" in op.SCHEMA.by_name:
        return op.arg("scale_factors") or [None] * space
    names = ("scales",) if space == 1 else ("scales_d", "scales_h", "scales_w")[-space:]
    return [op.arg(name) for name in names]


# -- norms -----------------------------------------------------------------------------------


@lowers("aten.layer_norm.default", to="openvino", sample=("2x4xf32", [4]))
def layer_norm(
    x: Value, normalized: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """Lower to MVN over the last axes, a product and a sum."""
    axes = list(range(x.rank - len(normalized), x.rank))
    fields: dict[str, Any] = {"eps": float(eps), "normalize_variance": True}
    y = x.op("MVN", axes, eps_mode="INSIDE_SQRT", **fields)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@lowers("aten.group_norm.default", to="openvino", sample=("1x4x3xf32", 2))
def group_norm(
    x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """Lower to GroupNormalization; absent scales are ones, absent shifts zeros."""
    channels = x.shape[1]
    if x.rank < 3 or not isinstance(channels, int):
        refuse("the norm is of no image, or its number of channels is symbolic")
    scale = Value(x.b.constant(torch.ones(channels)), x.b) if weight is None else weight
    shift = Value(x.b.constant(torch.zeros(channels)), x.b) if bias is None else bias
    return x.op("GroupNormalization", scale, shift, num_groups=groups, epsilon=float(eps))


@lowers("aten.batch_norm.default", to="openvino", sample=(
    "2x4x3xf32", "4xf32", "4xf32", "4xf32", "4xf32", False, 0.1, 1e-5, True))  # fmt: skip
def batch_norm(
    x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None,
    *, op: Any,
) -> Value:  # fmt: skip
    """Lower a norm by stored statistics to BatchNormInference."""
    if op.arg("training") or mean is None or var is None:
        refuse("the statistics are those of the batch")
    channels = x.shape[1]
    scale = Value(x.b.constant(torch.ones(channels)), x.b) if weight is None else weight
    shift = Value(x.b.constant(torch.zeros(channels)), x.b) if bias is None else bias
    return x.op("BatchNormInference", scale, shift, mean, var, epsilon=float(op.arg("eps")))


@lowers(
    {
        "aten.softmax.int": "Softmax",
        "aten._softmax.default": "Softmax",
        "aten.log_softmax.int": "LogSoftmax",
        "aten._log_softmax.default": "LogSoftmax",
    },
    to="openvino", sample=("2x4xf32", 1),
)  # fmt: skip
def softmax(x: Value, dim: int, *, form: str, out: Out) -> Value:
    """Lower along one axis."""
    if x.rank == 0:
        refuse("a scalar has no axis")
    return x.cast(out.dtype).op(form, axis=x.axis(dim))


# -- reductions ------------------------------------------------------------------------------

SUMS = {"aten.mean.dim": "ReduceMean", "aten.sum.dim_IntList": "ReduceSum"}
EXTREMES = {"aten.amax.default": "ReduceMax", "aten.amin.default": "ReduceMin"}
ONE_AXIS = {
    "aten.any.dim": "ReduceLogicalOr",
    "aten.all.dim": "ReduceLogicalAnd",
    "aten.prod.dim_int": "ReduceProd",
}


def _reduced(x: Value, dims: Any, keeps: bool, name: str, shape: Sequence[Dim]) -> Value:
    axes = sorted({x.axis(dim) for dim in dims} if dims else range(x.rank))
    return x.op(name, axes, shape=shape, keep_dims=keeps) if axes else x


@lowers(SUMS, to="openvino", sample=("2x4xf32", [1]))
def sum_(x: Value, dim: Any, keepdim: bool, *, form: str, out: Out) -> Value:
    """Lower a sum or a mean over axes, in the result's element type."""
    return _reduced(x.cast(out.dtype), dim, keepdim, form, out.shape)


@lowers(EXTREMES, to="openvino", deviation=loses_nan, sample=("2x4xf32", [1]))
def extreme_of(x: Value, dim: Any, keepdim: bool, *, form: str, out: Out) -> Value:
    """Lower a maximum or a minimum over axes."""
    return _reduced(x, dim, keepdim, form, out.shape)


@lowers(ONE_AXIS, to="openvino", sample=("2x4xi1", 1))
def reduction(x: Value, dim: int, keepdim: bool, *, form: str, out: Out) -> Value:
    """Lower a product, or whether any or all elements are true, along an axis."""
    if form != "ReduceProd" and x.dtype != i1:
        x = x.binary("NotEqual", 0, i1)
    return _reduced(x.cast(out.dtype), [dim], keepdim, form, out.shape)


# -- attention -------------------------------------------------------------------------------


def masks_rows(op: Any, program: Any) -> Deviation | None:
    """Return the deviation of a row without any key: NaN instead of zeros."""
    lost = Deviation("a row of which all keys are masked is NaN, not 0", accepted=True)
    return None if op.operand("attn_mask") is None else lost


@lowers(
    "aten.scaled_dot_product_attention.default", to="openvino", deviation=masks_rows,
    bound=ROUNDED, sample=("1x2x3x4xf32", "1x2x3x4xf32", "1x2x3x4xf32"),
)  # fmt: skip
def attention(
    query: Value, key: Value, value: Value, mask: Value | None, *, op: Any, out: Out
) -> Value:
    """Lower to ScaledDotProductAttention; shared keys are repeated for each head."""
    if (dropped := drops_out(op)) is not None:
        refuse(dropped.reason)
    scale, group = no_refusal(scale_of(op)), no_refusal(query_group(op))
    if query.rank < 3:
        refuse("the queries have no batch")
    if group > 1:
        key, value = (_repeated(x, group) for x in (key, value))
    causal = bool(op.arg("is_causal"))
    ratio = scale * math.sqrt(_number(query.shape[-1]))
    if not math.isclose(ratio, 1, rel_tol=1e-7):
        query = query * ratio
    masks = [] if mask is None else [mask]
    return query.op("ScaledDotProductAttention", key, value, *masks, shape=out.shape, causal=causal)


def _number(size: Dim) -> int:
    return size if isinstance(size, int) else refuse("the head size is symbolic")


def _repeated(x: Value, group: int) -> Value:
    *batch, heads, length, depth = x.shape
    spread = x.reshape(*batch, heads, 1, length, depth)
    shape = (*batch, heads, group, length, depth)
    spread = spread.op(
        "Broadcast", [1] * len(batch) + [1, group, 1, 1], shape=shape, mode="bidirectional"
    )
    return spread.reshape(*batch, heads * group, length, depth)


RULES = lowerings_of(__name__)
