"""Average and maximum pooling in NHWC.

The kernels pass scale and zero point through; another quantisation of the result is a table
behind the maximum (exact), and behind the average where it is no finer; a finer average is a
depthwise convolution with ones, which rounds once. `count_include_pad` with
padding becomes a pad with the zero point, and without padding nothing at all.

Before:
    %a = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %p = aten.avg_pool2d.default(%a, [2, 2]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
    %q = quant.qcast %p : tensor<1x2x2x2xf32> to tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
After:
    %v0 = cmsis.transpose(%x) {perm = array<i64: 0, 2, 3, 1>}
        : (tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>
    %v1 = cmsis.quantized_avg_pool2d_nhwc(%v0) {zero_point = 3 : i64,
        multiplier = 1073741824 : i64, shift = 0 : i64, scratch = 0 : i64,
        kernel_size = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0>,
        ceil_mode = false} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
    %q = cmsis.transpose(%v1) {perm = array<i64: 0, 3, 1, 2>}
        : (tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    requantize_overflows,
)
from stepwell.dialects.cmsis.ops import (
    QuantizedAvgPool2dNhwc,
    QuantizedMaxPool2dNhwc,
)
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import AnyTensor, dims, element, tensor
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    is_finer,
    quantized_uses,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import (
    not_fixed,
    ones,
    pair,
    requantisation,
    shift_refusal,
    summed_windows,
)
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled
from stepwell.translate.rewrites.cmsis.placing.reshape import padded, reshaped, to_nchw, to_nhwc
from stepwell.translate.rewrites.spelling.maxima import reads_their_indices

AVERAGE = tuple(op_class(f"aten.{name}.default") for name in ("avg_pool2d", "avg_pool1d"))
ADAPTIVE = tuple(
    op_class(f"aten.{name}.default") for name in ("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
)
MAXIMUM = tuple(
    op_class(f"aten.{name}.default")
    for name in ("max_pool2d", "max_pool1d", "max_pool2d_with_indices")
)


@dataclass(frozen=True)
class Window:
    """Kernel, stride and padding, each (h, w)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    ceil: bool
    counts_padding: bool


@dataclass(frozen=True)
class Pool:
    """A pooling of a quantised image, every use of it quantised."""

    op: SchemaOp
    input: Activation
    window: Window
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class LowerPooling(Rewrite[Pool]):
    """q(pool(dq(x))) → cmsis."""

    name: ClassVar[str] = "lower-pooling"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*AVERAGE, *ADAPTIVE, *MAXIMUM)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="averages are rounded, in units")

    def match(self, op: SchemaOp, program: Program) -> Pool | Refusal | None:
        """The window is one the kernels have, operand and uses are int8."""
        given = op.operands[0]
        if refusal := not_fixed(given):
            return refusal
        window = window_of(op)
        if isinstance(window, Refusal):
            return window
        if refusal := reads_their_indices(op):
            return refusal
        x = activation(given)
        if isinstance(x, Refusal):
            return x
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        finer = [use for use in uses if is_finer(use, x)]
        if not isinstance(op, MAXIMUM) and finer and not can_be_summed(window, given):
            return Refusal(
                f"its result has scale {finer[0].held.scale:g}, finer than its input's "
                f"{x.held.scale:g}, which the kernel passes through"
            )
        if not isinstance(op, MAXIMUM):
            reach = 255 * prod(window.kernel)
            for use in finer:
                factor = _factor(window, x, use)
                if found := shift_refusal([factor]):
                    return found
                if requantize_overflows(-reach, reach, factor):
                    return Refusal(f"a factor of {factor.real:g} takes the sum past int32")
        return Pool(op, x, window, uses)

    def build(self, match: Pool, rw: Rewriter) -> None:
        """NHWC in, the kernel, NCHW back, a table for another quantisation."""
        shape = cast("tuple[int, ...]", dims(match.input.value.type))
        made_shape = cast("tuple[int, ...]", dims(match.op.results[0].type))
        image = to_nhwc(rw, reshaped(rw, match.input.value, four(shape)))
        n, c, h, w = four(made_shape)
        made_image = tensor((n, h, w, c), element(image.type))
        pooled: SSAValue | None = None
        for use, group in distinct(match.uses):
            if not isinstance(match.op, MAXIMUM) and is_finer(use, match.input):
                value = _weighted(rw, match, image, use, (n, h, w, c))
                deliver(rw, group, reshaped(rw, to_nchw(rw, value), made_shape))
                continue
            if pooled is None:
                pooled = _pooled(rw, match, image, made_image)
                pooled = reshaped(rw, to_nchw(rw, pooled), made_shape)
            deliver(rw, group, rescaled(rw, pooled, use))


def _factor(window: Window, given: Activation, use: Use) -> Multiplier:
    """From the sum over a window to a use's integers."""
    return quantize_multiplier(given.held.scale / prod(window.kernel) / use.held.scale)


def can_be_summed(window: Window, given: SSAValue) -> bool:
    """Whether a depthwise convolution with ones is the same average: every window whole."""
    whole = window.counts_padding or not any(window.padding)
    return whole and not window.ceil and dims(given.type)[0] == 1 and len(dims(given.type)) == 4


def _pooled(rw: Rewriter, match: Pool, image: SSAValue, result: AnyTensor) -> SSAValue:
    """The kernel, which passes scale and zero point through."""
    window, padding = match.window, match.window.padding
    held, zero = match.input.held, match.input.held.zero_point
    if window.counts_padding and any(padding):
        image = padded(rw, image, (0, *padding, 0), (0, *padding, 0), zero)
        padding = (0, 0)
    fields: dict[str, Any] = {
        "kernel_size": window.kernel,
        "stride": window.stride,
        "padding": padding,
        "ceil_mode": window.ceil,
    }
    if isinstance(match.op, MAXIMUM):
        made: Operation = QuantizedMaxPool2dNhwc.make(
            image,
            result=result,
            dilation=(1, 1),
            input_zero_point=zero,
            output_zero_point=zero,
            activation_min=held.low,
            activation_max=held.high,
            **fields,
        )
    else:
        scale = quantize_multiplier(held.scale)
        made = QuantizedAvgPool2dNhwc.make(
            image,
            result=result,
            zero_point=zero,
            multiplier=scale.multiplier,
            shift=scale.shift,
            scratch=0,
            **fields,
        )
    return rw.insert(made).results[0]


def _weighted(
    rw: Rewriter, match: Pool, image: SSAValue, use: Use, shape: tuple[int, int, int, int]
) -> SSAValue:
    """A depthwise convolution with ones, which rounds once to whatever scale is wanted."""
    window, channels = match.window, shape[3]
    height, width = window.kernel
    factor = _factor(window, match.input, use)
    return summed_windows(
        rw,
        image,
        ones(rw, (1, height, width, channels), 1.0 / (height * width)),
        stride=window.stride,
        padding=window.padding,
        result=tensor(shape, element(use.type)),
        **requantisation(match.input.held, use, [factor] * channels),
    )


def four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(C, H, W) and (N, C, W) as NCHW: pooling over one dimension is over rows of height 1."""
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    assert len(shape) == 4
    return shape[0], shape[1], shape[2], shape[3]


def window_of(op: SchemaOp) -> Window | Refusal:
    """The window of a pooling op, or why the kernels have none like it."""
    shape = cast("tuple[int, ...]", dims(op.operands[0].type))
    if len(shape) != (3 if op.name.endswith("1d.default") else 4):
        return Refusal(f"its input is {op.operands[0].type}; the kernel takes batches of images")
    if isinstance(op, ADAPTIVE):
        return _adaptive(op, shape)
    is_flat = len(shape) == 3
    kernel, padding = _pair(op.arg("kernel_size"), is_flat, 1), _pair(op.arg("padding"), is_flat, 0)
    stride = _pair(op.arg("stride") or op.arg("kernel_size"), is_flat, 1)
    ceil = bool(op.arg("ceil_mode"))
    if isinstance(op, MAXIMUM):
        if _pair(op.arg("dilation"), is_flat, 1) != (1, 1):
            return Refusal(f"dilation is {op.arg('dilation')}; the kernel has none")
        if ceil:
            return Refusal("its output size is rounded up; the maximum kernel does not")
        return Window(kernel, stride, padding, False, False)
    if not is_flat and op.arg("divisor_override") is not None:
        return Refusal("its divisor is overridden; the kernel divides by the cells it sees")
    counts = bool(op.arg("count_include_pad")) and any(padding)
    if counts and ceil:
        return Refusal(
            "padding counts and the output size is rounded up; the kernel has one or the other"
        )
    return Window(kernel, stride, padding, ceil, counts)


def _adaptive(op: SchemaOp, shape: tuple[int, ...]) -> Window | Refusal:
    target = pair(op.arg("output_size"))
    sizes = shape[2], shape[3]
    if any(size % cells for size, cells in zip(sizes, target, strict=True)):
        return Refusal(f"{list(sizes)} does not divide into {list(target)} equal windows")
    kernel = (sizes[0] // target[0], sizes[1] // target[1])
    return Window(kernel, kernel, (0, 0), False, False)


def _pair(value: Any, is_flat: bool, default: int) -> tuple[int, int]:
    first, second = pair(value)
    return (default, first) if is_flat else (first, second)
