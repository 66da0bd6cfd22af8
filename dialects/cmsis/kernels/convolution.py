"""`arm_convolve_s8`, `arm_depthwise_conv_s8` and `arm_transpose_conv_s8`. Activations are NHWC."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects.cmsis.kernels.fixed_point import requantize, to_int8, wrap32
from stepwell.ir.compat.torch.lazy_imports import functional as F
from stepwell.ir.compat.torch.lazy_imports import torch


def conv_s8(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    input_offset: int,
    output_offset: int,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    activation: tuple[int, int],
    output_size: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Convolve int8 NHWC `x` with OHWI `weight` (grouped if I < C) → int8 NHWC.

    `padding` is (h, w) on the top and left. With `output_size` (h, w) the bottom and right are
    padded as far as that size needs, as in CMSIS-NN, which takes only the output's dimensions.
    Padding contributes nothing to the accumulator. `multiplier` and `shift` are int32 [O].
    """
    groups = x.shape[3] // weight.shape[3]
    kernel = weight.to(torch.float64).permute(0, 3, 1, 2)
    accumulator = _correlate(
        x, kernel, groups, stride, padding, dilation, input_offset, output_size
    )
    return _finish(accumulator, bias, output_offset, multiplier, shift, activation)


def depthwise_conv_s8(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    input_offset: int,
    output_offset: int,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    activation: tuple[int, int],
    output_size: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Convolve int8 NHWC `x` [N, H, W, C] with 1HWO `weight` [1, KH, KW, C·m] → int8 [N, H', W',
    C·m].
    """
    kernel = weight.to(torch.float64).permute(3, 0, 1, 2)
    accumulator = _correlate(
        x, kernel, x.shape[3], stride, padding, dilation, input_offset, output_size
    )
    return _finish(accumulator, bias, output_offset, multiplier, shift, activation)


def transpose_conv_s8(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int] = (0, 0),
    input_offset: int,
    output_offset: int,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    activation: tuple[int, int],
) -> torch.Tensor:
    """Up-convolve int8 NHWC `x` with OHWI `weight` → int8 NHWC; padding crops the result."""
    shifted = (x.to(torch.float64) + input_offset).permute(0, 3, 1, 2)
    kernel = weight.to(torch.float64).permute(3, 0, 1, 2)
    product = F.conv_transpose2d(
        shifted,
        kernel,
        stride=tuple(stride),
        padding=tuple(padding),
        output_padding=tuple(output_padding),
    )
    accumulator = wrap32(product.permute(0, 2, 3, 1).to(torch.int64))
    return _finish(accumulator, bias, output_offset, multiplier, shift, activation)


def _correlate(
    x: torch.Tensor,
    kernel: torch.Tensor,
    groups: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    input_offset: int,
    output_size: tuple[int, int] | None,
) -> torch.Tensor:
    """Compute the int32 accumulators as int64 NHWC; `kernel` is OIHW float64."""
    shifted = (x.to(torch.float64) + input_offset).permute(0, 3, 1, 2)
    after = list(padding)
    if output_size is not None:
        for axis in (0, 1):
            reach = (output_size[axis] - 1) * stride[axis]
            reach += dilation[axis] * (kernel.shape[2 + axis] - 1) + 1
            after[axis] = reach - shifted.shape[2 + axis] - padding[axis]
    padded = F.pad(shifted, (padding[1], after[1], padding[0], after[0]))
    product = F.conv2d(
        padded, kernel, stride=tuple(stride), dilation=tuple(dilation), groups=groups
    )
    return wrap32(product.permute(0, 2, 3, 1).to(torch.int64))


def _finish(
    accumulator: torch.Tensor,
    bias: torch.Tensor | None,
    output_offset: int,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    activation: tuple[int, int],
) -> torch.Tensor:
    if bias is not None:
        accumulator = wrap32(accumulator + bias.reshape(-1).to(torch.int64))
    scaled = requantize(accumulator, multiplier.to(torch.int64), shift.to(torch.int64))
    return to_int8(scaled + output_offset, *activation).contiguous()
