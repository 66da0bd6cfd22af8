"""Sums in float32 from the first term to the last, each step rounded, as the reference model adds.

A library adds in lanes and trees, whose bits depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CACHED = 1 << 15
"""Accumulators worked on at a time: they and their products stay in a core's cache."""


def total(x: Tensor, axis: int) -> Tensor:
    """The sum along one axis, which is kept; fp16 sums are rounded to fp16 at every step."""
    held = torch.zeros_like(x.narrow(axis, 0, 1))
    for part in x.split(1, axis):
        held = held + part
    return held


def product(left: Tensor, right: Tensor) -> Tensor:
    """`[B, M, K]` by `[B or 1, K, N]` to `[B, M, N]`, in float32."""
    batch, rows, depth = left.shape
    columns = right.shape[-1]
    result = torch.empty(batch, rows, columns)
    step = max(1, CACHED // max(1, columns))
    for b in range(batch):
        factors = right[b if right.shape[0] > 1 else 0]
        for first in range(0, rows, step):
            across = left[b, first : first + step].t().contiguous().unsqueeze(-1)
            held = torch.zeros(across.shape[1], columns)
            term = torch.empty_like(held)
            for k in range(depth):
                held.add_(torch.mul(across[k], factors[k], out=term))
            result[b, first : first + step] = held
    return result


def convolution(
    image: Tensor, kernel: Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Padded NCHW by OIHW to NCHW, in float32: rows, then columns, then channels of the kernel."""
    taps = [tap for _, _, tap in windows(image, kernel.shape[2:], stride, dilation)]
    n, _, rows, columns = taps[0].shape
    left = torch.cat([tap.permute(0, 2, 3, 1).flatten(0, 2) for tap in taps], 1)
    right = kernel.permute(2, 3, 1, 0).flatten(0, 2)
    y = product(left.unsqueeze(0), right.unsqueeze(0))
    return y.reshape(n, rows, columns, -1).permute(0, 3, 1, 2)


def depthwise(
    image: Tensor, kernel: Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Padded NCHW by `[C * multiplier, 1, KH, KW]` to `[N, C * multiplier, OH, OW]`."""
    channels = torch.arange(kernel.shape[0]) // (kernel.shape[0] // image.shape[1])
    held: Tensor | float = 0.0
    for row, column, tap in windows(image, kernel.shape[2:], stride, dilation):
        held = held + tap[:, channels] * kernel[:, 0, row, column].reshape(-1, 1, 1)
    assert isinstance(held, Tensor)
    return held


def windows(
    image: Tensor, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[int, int, Tensor]]:
    """Row and column of a tap with the part `[N, C, OH, OW]` of a padded image that it reads."""
    reach = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
    spans = [(image.shape[2 + i] - reach[i] - 1) // stride[i] * stride[i] + 1 for i in range(2)]
    for row in range(size[0]):
        for column in range(size[1]):
            top, left = row * dilation[0], column * dilation[1]
            rows = slice(top, top + spans[0], stride[0])
            yield row, column, image[:, :, rows, left : left + spans[1] : stride[1]]
