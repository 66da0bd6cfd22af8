"""Block-scaled products, in the TOSA reference model's order of rounding.

The operators on separate data and scales (MATMUL_T_BLOCK_SCALED, CONV2D_BLOCK_SCALED) take the
dequantized elements, accumulate the products of one block of 32 in fp32 from the first to the last,
and add each block's sum to an fp32 accumulator, block after block. A convolution iterates over the
kernel's rows, then its columns, then the blocks of input channels, and adds the bias at the end.

MATMUL_T and CONV2D on block-scaled *types* accumulate the products one by one over the whole axis;
a MATMUL_T with a bf16 result rounds its sum to bf16 at every addition.

These orders were determined by experiment; tests repeat the comparison.

If no sum inside a block can round (four payloads), any order gives the same result, and the block
sums are computed as matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stepwell.dialects.tosa_mxfp import sequential
from stepwell.dialects.tosa_mxfp.numerics import cast_from_block_scaled
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, Payload

Scaled = tuple[Tensor, Tensor, Payload]
"""Codes ``[..., C]``, scales ``[..., C / 32]`` and their payload."""


def matmul_t_block_scaled(a: Scaled, b: Scaled) -> Tensor:
    """Multiply ``[B or 1, M, K]`` by ``[B or 1, N, K]`` to float32 ``[B, M, N]``
    (MATMUL_T_BLOCK_SCALED).
    """
    left, right = _values(a), _values(b)
    batch = max(left.shape[0], right.shape[0])
    total = torch.zeros(batch, left.shape[1], right.shape[1])
    return _accumulate(total, left, right, _sums_are_exact(a[2], b[2], left, right), None)


def matmul_t_of_types(a: Scaled, b: Scaled, dtype: torch.dtype = torch.float32) -> Tensor:
    """Multiply ``[B or 1, M, K]`` by ``[B or 1, N, K]`` to ``[B, M, N]`` of ``dtype``
    (MATMUL_T).
    """
    return sequential.product(_values(a), _values(b).transpose(1, 2), dtype)


def conv2d_of_types(
    x: Scaled,
    weight: Scaled,
    bias: Tensor,
    pad: tuple[int, int, int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """CONV2D on block-scaled types; arguments as for `conv2d_block_scaled`."""
    image, kernel = _values(x).permute(0, 3, 1, 2), _values(weight).permute(0, 3, 1, 2)
    y = sequential.convolution(image, kernel, pad, stride, dilation)
    return y.permute(0, 2, 3, 1) + bias


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
    """Return the largest magnitude; inf if any value is inf or NaN."""
    if not values.numel():
        return 0.0
    most = float(values.abs().max())
    return most if most == most else float("inf")


def _accumulate(
    total: Tensor, left: Tensor, right: Tensor, exact: bool, read: Tensor | None
) -> Tensor:
    """Add ``[B, M, K]`` by ``[B or 1, N, K]`` to ``total`` block by block; unread rows add 0."""
    columns = right.transpose(1, 2)
    for start in range(0, left.shape[-1], BLOCK):
        chunk = slice(start, start + BLOCK)
        if exact:
            block = torch.matmul(left[..., chunk], columns[:, chunk])
        else:
            block = sequential.product(left[..., chunk], columns[:, chunk])
        if read is not None:
            block = torch.where(read, block, 0.0)
        total = total + block
    return total
