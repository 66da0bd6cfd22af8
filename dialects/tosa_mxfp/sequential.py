"""Sums and products from the first term to the last, rounded at each operation, as in the reference
model.

Sums of libraries have another order, so that their last bits depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

CACHED = 1 << 15
"""The number of accumulators per tile: they and their products stay in a core's cache."""


def total(x: Tensor, axis: int) -> Tensor:
    """Sum along one axis, which is kept; fp16 sums are rounded to fp16 at every addition."""
    held = torch.zeros_like(x.narrow(axis, 0, 1))
    for part in x.split(1, axis):
        held = held + part
    return held


def multiplied(x: Tensor, axis: int) -> Tensor:
    """Multiply along one axis, which is kept; rounded to the type of `x` at every
    multiplication.
    """
    held = torch.ones_like(x.narrow(axis, 0, 1))
    for part in x.split(1, axis):
        held = held * part
    return held


def product(left: Tensor, right: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Multiply `[B or 1, M, K]` by `[B or 1, K, N]` to `[B, M, N]`; the sum is rounded to `dtype`
    at each addition.

    The operands are float32, and so are their products.
    """
    rows, columns = left.shape[1], right.shape[-1]
    batch = max(left.shape[0], right.shape[0])
    left, right = left.expand(batch, -1, -1), right.expand(batch, -1, -1)
    if hasattr(left, "held") or hasattr(right, "held"):
        # For symbolic expressions, whose sums have no order.
        return torch.bmm(left, right).to(dtype)
    result = torch.empty(batch, rows, columns, dtype=dtype)
    together = max(1, CACHED // max(1, rows * columns))
    step = max(1, CACHED // max(1, columns))
    for b in range(0, batch, together):
        factors = right[b : b + together].transpose(0, 1).unsqueeze(2).contiguous()
        for row in range(0, rows, step):
            lines = left[b : b + together, row : row + step].permute(2, 0, 1).contiguous()
            held = torch.zeros(*lines.shape[1:], columns)
            term = torch.empty_like(held)
            for line, factor in zip(lines.unsqueeze(-1), factors, strict=True):
                held.add_(torch.mul(line, factor, out=term))
                if dtype != torch.float32:
                    held = held.to(dtype).to(torch.float32)
            result[b : b + together, row : row + step] = held
    return result


Four = Sequence[int]
"""Rows or columns at the top, at the bottom, on the left and on the right."""


def convolution(
    image: Tensor, kernel: Tensor, pad: Four, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Convolve NCHW with OIHW to NCHW in float32: rows, then columns, then channels of the kernel.

    A tap in the padding is skipped, even if the weight is inf or NaN.
    """
    taps = list(windows(image, kernel.shape[2:], pad, stride, dilation))
    if any(pad) and not bool(kernel.isfinite().all()):
        tensor: Tensor | float = 0.0
        for row, column, tap, inside in taps:
            for channel in range(kernel.shape[1]):
                weight = kernel[:, channel, row, column].reshape(-1, 1, 1)
                term = tap[:, channel : channel + 1] * weight
                tensor = tensor + torch.where(inside, term, 0.0)
        assert isinstance(tensor, Tensor)
        return tensor
    n, _, rows, columns = taps[0][2].shape
    left = torch.cat([tap.permute(0, 2, 3, 1).flatten(0, 2) for _, _, tap, _ in taps], 1)
    right = kernel.permute(2, 3, 1, 0).flatten(0, 2)
    y = product(left.unsqueeze(0), right.unsqueeze(0))
    return y.reshape(n, rows, columns, -1).permute(0, 3, 1, 2)


def depthwise(
    image: Tensor, kernel: Tensor, pad: Four, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Convolve NCHW with `[C * multiplier, 1, KH, KW]` to `[N, C * multiplier, OH, OW]`, as
    `convolution`.
    """
    channels = torch.arange(kernel.shape[0]) // (kernel.shape[0] // image.shape[1])
    tensor: Tensor | float = 0.0
    for row, column, tap, inside in windows(image, kernel.shape[2:], pad, stride, dilation):
        term = tap[:, channels] * kernel[:, 0, row, column].reshape(-1, 1, 1)
        tensor = tensor + torch.where(inside, term, 0.0)
    assert isinstance(tensor, Tensor)
    return tensor


def windows(
    image: Tensor,
    size: Sequence[int],
    pad: Four,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Yield row and column of a tap, the part `[N, C, OH, OW]` that it reads, and a mask of
    elements outside the padding.
    """
    top, bottom, left, right = pad
    inside = torch.ones(1, 1, *image.shape[2:], dtype=torch.bool)
    image, inside = (F.pad(x, (left, right, top, bottom)) for x in (image, inside))
    reach = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
    spans = [(image.shape[2 + i] - reach[i] - 1) // stride[i] * stride[i] + 1 for i in range(2)]
    for row in range(size[0]):
        for column in range(size[1]):
            first = row * dilation[0], column * dilation[1]
            rows = slice(first[0], first[0] + spans[0], stride[0])
            columns = slice(first[1], first[1] + spans[1], stride[1])
            yield row, column, image[:, :, rows, columns], inside[:, :, rows, columns]
