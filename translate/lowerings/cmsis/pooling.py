"""Lowerings of average and maximum pooling in NHWC, means and sums.

The pooling kernels keep scale and zero point. If the result has another quantization, a table
lookup follows a maximum (exact), or an average unless the result's scale is finer. A finer average
is a depthwise convolution with ones, which rounds once. `count_include_pad` with padding becomes a
pad with the zero point.

A mean over the last dimension is a fully connected layer of ones. A mean over other dimensions is
an average pool of a reshaped image, or a depthwise convolution with ones. When optimizing for
memory, it is a convolution of a single channel: an MVE depthwise kernel takes 496 bytes of scratch
per cell, for any number of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import Multiplier, quantize_multiplier, requantize_overflows
from stepwell.dialects.cmsis.ops import (
    QuantizedAvgPool2dNhwc,
    QuantizedLinear,
    QuantizedMaxPool2dNhwc,
)
from stepwell.ir.rewriting.rewrite import EXACT, Refusal, Rewriter
from stepwell.ir.types import AnyTensor, dims, element, tensor
from stepwell.translate.decompositions.pools import reads_their_indices
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.cmsis.values import (
    AVERAGED,
    factor_of,
    ones,
    requantization,
    summed_windows,
    written,
)
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Activation, Use, is_finer, quantized_source
from stepwell.translate.rewrites.cmsis.layout.reshape import (
    padded,
    reshaped,
    to_nchw,
    to_nhwc,
    transposed,
)
from stepwell.translate.rewrites.cmsis.operators.convolution import four, not_fixed, pair
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled

OfUse = Callable[[Use], SSAValue]
AVERAGE, ADAPTIVE, MAXIMUM = "average", "adaptive", "maximum"


@dataclass(frozen=True)
class PoolWindow:
    """The kernel, stride and padding of a pool, each (h, w)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    ceil: bool
    counts_padding: bool


@lowers(
    {
        "aten.avg_pool2d.default": AVERAGE,
        "aten.avg_pool1d.default": AVERAGE,
        "aten.adaptive_avg_pool2d.default": ADAPTIVE,
        "aten._adaptive_avg_pool2d.default": ADAPTIVE,
        "aten.max_pool2d.default": MAXIMUM,
        "aten.max_pool1d.default": MAXIMUM,
        "aten.max_pool2d_with_indices.default": MAXIMUM,
    },
    to="cmsis",
    quantized_operands=lambda op: (
        not_fixed(op.operands[0]) or reads_their_indices(op) or Parts(op.operands[:1])
    ),
    takes_empty=True,
    bound=AVERAGED,
    sample="""
        %a = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
        %p = aten.avg_pool2d.default(%a, [2, 2]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
        %q = quant.qcast %p : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
    """,
)
def pooling(x: Activation, *, form: str, op: Any, layer: Layer, b: Rewriter) -> OfUse:
    """Lower to the NHWC pooling kernel; add a table lookup for another quantization."""
    window, is_mean = window_of(op, form), form != MAXIMUM
    factors: dict[Use, Multiplier] = {}
    for use in layer.uses if is_mean else ():
        if is_finer(use, x):
            factors[use] = _summing(window, x, op.operands[0], use)
    shape = cast("tuple[int, ...]", dims(x.value.type))
    made_shape = cast("tuple[int, ...]", dims(op.results[0].type))
    image = to_nhwc(b, reshaped(b, x.value, four(shape, len(shape) == 3)))
    n, c, h, w = four(made_shape, len(made_shape) == 3)
    passed: list[SSAValue] = []  # The kernel's result, which all uses of no finer scale share.

    def of_use(use: Use) -> SSAValue:
        if use in factors:
            value = summed_windows(
                b,
                image,
                ones(b, (1, *window.kernel, c), 1.0 / prod(window.kernel)),
                stride=window.stride,
                padding=window.padding,
                result=tensor((n, h, w, c), element(use.type)),
                **requantization(x.held, use, [factors[use]] * c),
            )
            return reshaped(b, to_nchw(b, value), made_shape)
        if not passed:
            result = tensor((n, h, w, c), element(image.type))
            pooled = _pooled(b, x, window, image, result, is_mean)
            passed.append(reshaped(b, to_nchw(b, pooled), made_shape))
        return rescaled(b, passed[0], use)

    return of_use


def _summing(window: PoolWindow, x: Activation, value: SSAValue, use: Use) -> Multiplier:
    """Return the factor from a window's sum of integers to the result's integers (`use`), for an
    average by a convolution with ones.
    """
    whole = window.counts_padding or not any(window.padding)
    if not whole or window.ceil or dims(value.type)[0] != 1 or len(dims(value.type)) != 4:
        refuse(
            f"the result has scale {use.held.scale:g}, finer than its input's "
            f"{x.held.scale:g}, which the kernel passes through"
        )
    factor, reach = factor_of(x.held.scale / prod(window.kernel) / use.held.scale), 255
    reach *= prod(window.kernel)
    if requantize_overflows(-reach, reach, factor):
        refuse(f"a factor of {factor.real:g} takes the sum past int32")
    return factor


def _pooled(
    b: Rewriter,
    x: Activation,
    window: PoolWindow,
    image: SSAValue,
    result: AnyTensor,
    is_mean: bool,
) -> SSAValue:
    """Apply the pooling kernel, which keeps scale and zero point."""
    padding, zero = window.padding, x.held.zero_point
    if window.counts_padding and any(padding):
        image = padded(b, image, (0, *padding, 0), (0, *padding, 0), zero)
        padding = (0, 0)
    fields: dict[str, Any] = {
        "result": result,
        "kernel_size": window.kernel,
        "stride": window.stride,
        "padding": padding,
        "ceil_mode": window.ceil,
    }
    if not is_mean:
        if window.ceil:  # The kernel rounds its size down: pad the end with the lowest value.
            image, fields["ceil_mode"] = _rounded_up(b, x, window, image, result), False
        op: Any = QuantizedMaxPool2dNhwc.make(
            image,
            dilation=(1, 1),
            input_zero_point=zero,
            output_zero_point=zero,
            activation_min=x.held.low,
            activation_max=x.held.high,
            **fields,
        )
    else:
        op = QuantizedAvgPool2dNhwc.make(image, **_scale(x), **fields)
    return written(op, b)


def _rounded_up(
    b: Rewriter, x: Activation, window: PoolWindow, image: SSAValue, result: AnyTensor
) -> SSAValue:
    """Pad an NHWC image for its last windows with a value that is never the maximum."""
    given, made = (cast("tuple[int, ...]", dims(type_))[1:3] for type_ in (image.type, result))
    each = zip(given, made, window.kernel, window.stride, window.padding, strict=True)
    behind = [
        max(0, (cells - 1) * stride + kernel - size - 2 * padding)
        for size, cells, kernel, stride, padding in each
    ]
    return padded(b, image, (0,) * 4, (0, *behind, 0), x.held.low) if any(behind) else image


def _scale(x: Activation) -> dict[str, Any]:
    """Return the average kernel's quantization fields; it keeps the scale."""
    scale = quantize_multiplier(x.held.scale)
    numbers = {"zero_point": x.held.zero_point, "multiplier": scale.multiplier}
    return {**numbers, "shift": scale.shift, "scratch": 0}


def window_of(op: Operation, form: str) -> PoolWindow:
    """Return the window of a pooling op; refuse windows that the kernels do not support."""
    assert isinstance(op, SchemaOp)
    shape = cast("tuple[int, ...]", dims(op.operands[0].type))
    if len(shape) != (3 if op.name.endswith("1d.default") else 4):
        refuse(f"the input is {op.operands[0].type}; the kernel takes batches of images")
    if form == ADAPTIVE:
        target, sizes = pair(op.arg("output_size")), (shape[2], shape[3])
        if any(size % cells for size, cells in zip(sizes, target, strict=True)):
            refuse(f"{list(sizes)} does not divide into {list(target)} equal windows")
        cells = (sizes[0] // target[0], sizes[1] // target[1])
        return PoolWindow(cells, cells, (0, 0), False, False)
    is_flat = len(shape) == 3
    kernel, padding = pair(op.arg("kernel_size"), is_flat, 1), pair(op.arg("padding"), is_flat, 0)
    stride = pair(op.arg("stride") or op.arg("kernel_size"), is_flat, 1)
    ceil = bool(op.arg("ceil_mode"))
    if form == MAXIMUM:
        if pair(op.arg("dilation"), is_flat, 1) != (1, 1):
            refuse(f"dilation is {op.arg('dilation')}; the kernel has none")
        return PoolWindow(kernel, stride, padding, ceil, False)
    if not is_flat and op.arg("divisor_override") is not None:
        refuse("divisor_override is set; the kernel divides by the number of cells in the window")
    counts = bool(op.arg("count_include_pad")) and any(padding)
    if counts and ceil:
        refuse("count_include_pad and ceil_mode are both set; the kernel supports one of them")
    return PoolWindow(kernel, stride, padding, ceil, counts)


# -- means and sums ----------------------------------------------------------------------------

SAFE_CELLS = (1 << 31) // 255 - 1


def fixed(op: SchemaOp) -> Parts | Refusal:
    """Match the operand of a reduction, which must have a static shape."""
    return not_fixed(op.operands[0]) or Parts(op.operands[:1])


def _run_of(shape: tuple[int, ...], dim: Any) -> tuple[int, int, int, bool] | None:
    """Return the element counts before, along and after adjacent axes, and whether these are
    planes.

    The planes are height and width of NCHW, which the kernels read as NHWC.
    """
    axes = sorted(axis % len(shape) for axis in (dim or range(len(shape))) if shape)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    if len(shape) == 4 and axes == [2, 3]:
        return shape[0], shape[2] * shape[3], shape[1], True
    first, last = axes[0], axes[-1] + 1
    return prod(shape[:first]), prod(shape[first:last]), prod(shape[last:]), False


@lowers(
    {"aten.mean.dim": True, "aten.sum.dim_IntList": False},
    to="cmsis",
    quantized_operands=fixed,
    bound=AVERAGED,
    sample="""
        %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
        %m = aten.mean.dim(%a, [-1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
        %q = quant.qcast %m : tensor<2x1xf32> to tensor<2x1x!quant.uniform<i8:f32, 0.25>>
    """,
)
def mean(x: Activation, *, form: bool, dim: Any, dtype: Any, layer: Layer, b: Rewriter) -> OfUse:
    """Lower a mean or sum to a fully connected layer of ones, an average pool, or a convolution
    with ones.
    """
    if dtype is not None:
        refuse("the op also changes the element type")
    shape = cast("tuple[int, ...]", dims(x.value.type))
    run = _run_of(shape, dim)
    if run is None:
        refuse(f"dimensions {dim} of {list(shape)} are empty, or not adjacent")
    before, over, after, is_image = run
    if over > SAFE_CELLS:
        refuse(f"a sum of {over} values can overflow int32")
    share = 1.0 / over if form else 1.0
    factors = {use: factor_of(x.held.scale * share / use.held.scale) for use in layer.uses}
    for factor in factors.values():
        if requantize_overflows(-255 * over, 255 * over, factor):
            refuse(f"a factor of {factor.real:g} takes the sum of {over} values past int32")
    given = to_nhwc(b, x.value) if is_image else x.value

    def of_use(use: Use) -> SSAValue:
        factor = factors[use]
        if after == 1:
            rows = reshaped(b, given, (before, over))
            weight = ones(b, (1, over), share)
            fields = requantization(x.held, use, [factor])
            result = tensor((before, 1), element(use.type))
            op = QuantizedLinear.make(
                rows, weight, None, None, result=result, filter_offset=0, **fields
            )
            value = written(op, b)
        elif form and not is_finer(use, x):
            image = reshaped(b, given, (before, over, 1, after))
            result = tensor((before, 1, 1, after), element(image.type))
            sides: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "ceil_mode": False}
            windows = {"result": result, "kernel_size": (over, 1), **sides}
            op = QuantizedAvgPool2dNhwc.make(image, **windows, **_scale(x))
            value = rescaled(b, reshaped(b, written(op, b), dims(use.type)), use)
        else:
            cells = reshaped(b, given, (before, over, after))
            if before > 1:  # A single image whose channels are (batch, channel) pairs.
                cells = transposed(b, cells, (1, 0, 2))
            channels = before * after
            width, depth = (channels, 1) if for_memory(b) else (1, channels)
            value = summed_windows(
                b,
                reshaped(b, cells, (1, over, width, depth)),
                ones(b, (1, over, 1, depth), share),
                stride=(1, 1),
                padding=(0, 0),
                result=tensor((1, 1, width, depth), element(use.type)),
                **requantization(x.held, use, [factor] * depth),
            )
        return reshaped(b, value, dims(use.type))

    return of_use


def for_memory(b: Rewriter) -> bool:
    """Whether the lowering optimizes for memory."""
    option = b.program.context.option
    return option("optimize") == "memory" or option("arena") is not None


@lowers(
    {"aten.max.dim": aten.AmaxDefault, "aten.min.dim": aten.AminDefault},
    to="aten",
    unless=lambda op: quantized_source(op.operands[0]) is None,
    bound=EXACT,
    sample="""
        %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
        %y, %i = aten.max.dim(%a, 1) : (tensor<2x4xf32>) -> (tensor<2xf32>, tensor<2xi64>)
        func.return %y : tensor<2xf32>
    """,
)
def extreme_of_axis(x: Value, *, form: Any, op: Any, out: Out) -> tuple[Value, None]:
    """Replace a maximum or minimum along an axis with unused indices by the op without them."""
    no_refusal(reads_their_indices(op))
    return x.call(form, [op.arg("dim")], bool(op.arg("keepdim")), shape=out.shape), None


@lowers(
    "aten.amax.default",
    to="cmsis",
    quantized_operands=lambda op: None if quantized_source(op.operands[0]) is None else fixed(op),
    bound=EXACT,
    sample="""
        %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
        %m = aten.amax.default(%a, [-1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
        %q = quant.qcast %m : tensor<2x1xf32> to tensor<2x1x!quant.uniform<i8:f32, 0.5:3>>
    """,
)
def maximum(x: Activation, *, dim: Any, layer: Layer, b: Rewriter) -> OfUse | None:
    """Lower to a maximum pool of a reshaped image, and a table for another quantization."""
    run = _run_of(cast("tuple[int, ...]", dims(x.value.type)), dim)
    if run is None:
        return None
    before, over, after, is_image = run
    image = reshaped(b, to_nhwc(b, x.value) if is_image else x.value, (before, over, 1, after))
    window = PoolWindow((over, 1), (1, 1), (0, 0), False, False)
    result = tensor((before, 1, 1, after), element(image.type))
    pooled = _pooled(b, x, window, image, result, is_mean=False)
    return lambda use: rescaled(b, reshaped(b, pooled, dims(use.type)), use)


RULES = lowerings_of(__name__)
