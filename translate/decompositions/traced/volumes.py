"""3-D convolutions as sums of 2-D convolutions over the kernel's planes.

The pass `volumes-to-images` handles constant, not transposed kernels, where each plane is a filter
of its own. Here the kernel may be computed at run time. A transposed convolution adds each plane's
result at the depths that the plane reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Compute a 3-D convolution by moving the planes of `[N, C, D, H, W]` into the batch."""
    if x.dim() != 5 or x.numel() == 0:
        return NotImplemented
    batch, channels, depth, *image = x.shape
    step, gap = stride[0], dilation[0]
    planes = weight.shape[2]
    front = x.permute(0, 2, 1, 3, 4)
    if transposed:
        count = (depth - 1) * step - 2 * padding[0] + gap * (planes - 1) + output_padding[0] + 1
    else:
        count = (depth + 2 * padding[0] - gap * (planes - 1) - 1) // step + 1
        if padding[0]:
            front = torch.constant_pad_nd(front, (0, 0, 0, 0, 0, 0, padding[0], padding[0]))
    total = None
    for plane in range(planes):
        met = front
        if not transposed:
            start = plane * gap
            met = front[:, start : start + (count - 1) * step + 1 : step]
        made = torch.convolution(
            met.reshape(-1, channels, *image),
            weight.select(2, plane),
            bias if plane == 0 and not transposed else None,
            stride[1:],
            padding[1:],
            dilation[1:],
            transposed,
            output_padding[1:],
            groups,
        )
        made = made.reshape(batch, -1, *made.shape[1:])
        if transposed:
            first = plane * gap - padding[0]
            if first >= count or first + (depth - 1) * step < 0:
                continue
            made = _placed(made, step, first, count)
        total = made if total is None else total + made
    if total is None:
        return NotImplemented
    if transposed and bias is not None:
        total = total + bias.reshape(-1, 1, 1)
    return total.permute(0, 2, 1, 3, 4)


def _placed(planes: Tensor, step: int, first: int, count: int) -> Tensor:
    """Place planes along the depth, `step` apart from `first` on, with zeros between; `count` in
    all.
    """
    if step > 1:
        spread = torch.constant_pad_nd(planes.unsqueeze(2), (0, 0, 0, 0, 0, 0, 0, step - 1))
        planes = spread.flatten(1, 2).narrow(1, 0, (planes.shape[1] - 1) * step + 1)
    if first < 0:
        planes = planes.narrow(1, -first, planes.shape[1] + first)
    size, first = planes.shape[1], max(first, 0)
    if first + size > count:
        planes = planes.narrow(1, 0, count - first)
    return torch.constant_pad_nd(planes, (0, 0, 0, 0, 0, 0, first, count - first - planes.shape[1]))


VOLUMES: dict[Any, Callable[..., Any]] = {aten.convolution.default: convolution}
"""Operator → its decomposition."""
