"""The kernels `arm_avgpool_s8` and `arm_max_pool_s8`, on NHWC tensors."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects.cmsis.kernels.fixed_point import to_int8
from stepwell.ir.compat.torch.lazy_imports import functional as F
from stepwell.ir.compat.torch.lazy_imports import torch


def avgpool_s8(
    x: torch.Tensor,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_size: Sequence[int],
    activation: tuple[int, int] = (-128, 127),
) -> torch.Tensor:
    """Compute the mean of the raw int8 values of each window's *valid* cells, rounded half away
    from zero.

    No zero point is needed, because padding does not count: scale and zero point are unchanged.
    """
    cells = x.to(torch.float64).permute(0, 3, 1, 2)
    sums = _window_sums(cells, kernel, stride, padding, output_size)
    counts = _window_sums(torch.ones_like(cells[:1, :1]), kernel, stride, padding, output_size)
    half = torch.div(counts, 2, rounding_mode="trunc")
    nudged = torch.where(sums > 0, sums + half, sums - half)
    mean = torch.div(nudged, counts, rounding_mode="trunc")
    return to_int8(mean, *activation).permute(0, 2, 3, 1).contiguous()


def max_pool_s8(
    x: torch.Tensor,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_size: Sequence[int],
    activation: tuple[int, int] = (-128, 127),
) -> torch.Tensor:
    """Compute the maximum over each window's valid cells, clamped to `activation`."""
    cells = x.to(torch.float64).permute(0, 3, 1, 2)
    before, after = _padding_of(cells, kernel, stride, padding, output_size)
    padded = F.pad(cells, (before[1], after[1], before[0], after[0]), value=-128.0)
    pooled = F.max_pool2d(padded, tuple(kernel), tuple(stride))
    return to_int8(pooled, *activation).permute(0, 2, 3, 1).contiguous()


def _window_sums(
    cells: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_size: Sequence[int],
) -> torch.Tensor:
    """Compute the sum over each window of NCHW float64 `cells`, as int64."""
    before, after = _padding_of(cells, kernel, stride, padding, output_size)
    padded = F.pad(cells, (before[1], after[1], before[0], after[0]))
    sums = F.avg_pool2d(padded, tuple(kernel), tuple(stride), divisor_override=1)
    return sums.round().to(torch.int64)


def _padding_of(
    cells: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_size: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the cells to add on the top/left and on the bottom/right so that `output_size` windows
    fit.
    """
    after = [
        (output_size[axis] - 1) * stride[axis]
        + kernel[axis]
        - cells.shape[2 + axis]
        - padding[axis]
        for axis in (0, 1)
    ]
    return list(padding), after
