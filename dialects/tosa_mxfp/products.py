"""Block-scaled products, in the TOSA reference model's order of rounding.

The reference model takes the dequantised elements, adds up the products of one
block of 32 in fp32 from the first to the last, and adds each block's sum to an
fp32 accumulator, block after block.  A convolution runs over the kernel's rows,
then its columns, then the blocks of input channels, and adds the bias at the end.
All of it was found by experiment; a test repeats the comparison.

Where no sum inside a block can round (four payloads, any order is then the same)
the block sums are real matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stepwell.dialects.tosa_mxfp.numerics import cast_from_block_scaled
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, Payload

Scaled = tuple[Tensor, Tensor, Payload]
"""Codes ``[..., C]``, scales ``[..., C / 32]`` and their payload."""


def matmul_t_block_scaled(a: Scaled, b: Scaled) -> Tensor:
    """``[B, M, K]`` by ``[B or 1, N, K]`` to float32 ``[B, M, N]`` (MATMUL_T_BLOCK_SCALED)."""
    left, right = _values(a), _values(b)
    batch = max(left.shape[0], right.shape[0])
    total = torch.zeros(batch, left.shape[1], right.shape[1])
    return _accumulate(total, left, right, _sums_are_exact(a[2], b[2], left, right), None)


def conv2d_block_scaled(
    x: Scaled,
    weight: Scaled,
    bias: Tensor,
    pad: tuple[int, int, int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """CONV2D_BLOCK_SCALED: NHWC input, OHWI weight, float32 bias ``[O]`` or ``[1]``.

    ``pad`` is top, bottom, left, right.  Returns float32 ``[N, OH, OW, O]``.
    """
    image, kernel = _values(x), _values(weight)
    exact = _sums_are_exact(x[2], weight[2], image, kernel)
    n, height, width, channels = image.shape
    out_channels, kernel_h, kernel_w, _ = kernel.shape
    out_h = (height + pad[0] + pad[1] - (kernel_h - 1) * dilation[0] - 1) // stride[0] + 1
    out_w = (width + pad[2] + pad[3] - (kernel_w - 1) * dilation[1] - 1) // stride[1] + 1
    padding = (0, 0, pad[2], pad[3], pad[0], pad[1])
    image = torch.nn.functional.pad(image, padding)
    inside = torch.nn.functional.pad(torch.ones(n, height, width, 1, dtype=torch.bool), padding)

    total = torch.zeros(1, n * out_h * out_w, out_channels)
    for row in range(kernel_h):
        for column in range(kernel_w):
            top, left = row * dilation[0], column * dilation[1]
            window = (
                slice(None),
                slice(top, top + (out_h - 1) * stride[0] + 1, stride[0]),
                slice(left, left + (out_w - 1) * stride[1] + 1, stride[1]),
            )
            pixels = image[window].reshape(1, -1, channels)
            # A tap outside the image is skipped, even where the weight is NaN.
            read = None if not any(pad) else inside[window].reshape(1, -1, 1)
            total = _accumulate(total, pixels, kernel[:, row, column].unsqueeze(0), exact, read)
    return (total + bias).reshape(n, out_h, out_w, out_channels)


def _values(scaled: Scaled) -> Tensor:
    codes, scales, payload = scaled
    return cast_from_block_scaled(codes, scales, payload)


def _sums_are_exact(a: Payload, b: Payload, left: Tensor, right: Tensor) -> bool:
    """Whether no product or sum inside any block rounds, overflows or underflows in fp32."""
    if not a.block_dot_is_exact_with(b):
        return False
    return _least(left) * _least(right) >= 2.0**-130 and _most(left) * _most(right) <= 2.0**120


def _least(values: Tensor) -> float:
    magnitude = values.abs()
    magnitude = magnitude[magnitude > 0]
    return float(magnitude.min()) if magnitude.numel() else 1.0


def _most(values: Tensor) -> float:
    """The largest magnitude; inf if any value is inf or NaN."""
    if not values.numel():
        return 0.0
    most = float(values.abs().max())
    return most if most == most else float("inf")


def _accumulate(
    total: Tensor, left: Tensor, right: Tensor, exact: bool, read: Tensor | None
) -> Tensor:
    """Add ``[B, M, K]`` by ``[B or 1, N, K]`` to ``total`` block by block; rows not read add 0."""
    columns = right.transpose(1, 2)
    for start in range(0, left.shape[-1], BLOCK):
        chunk = slice(start, start + BLOCK)
        if exact:
            block = torch.matmul(left[..., chunk], columns[:, chunk])
        else:
            block = torch.zeros_like(total)
            for k in range(start, start + BLOCK):
                block += left[..., k : k + 1] * columns[:, k : k + 1]
        if read is not None:
            block = torch.where(read, block, 0.0)
        total = total + block
    return total
