"""`arm_transpose_s8` and `arm_pad_s8`: kernels that only move bytes."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.ir.compat.torch.lazy_imports import functional as F
from stepwell.ir.compat.torch.lazy_imports import torch


def transpose_s8(x: torch.Tensor, permutation: Sequence[int]) -> torch.Tensor:
    """Permute the dimensions in row-major order: dimension i of the result is `permutation[i]` of
    `x`.
    """
    return x.permute(tuple(permutation)).contiguous()


def pad_s8(
    x: torch.Tensor, before: Sequence[int], after: Sequence[int], value: int
) -> torch.Tensor:
    """Pad every dimension d of `x` with `before[d]` and `after[d]` cells of `value`."""
    widths: list[int] = []
    for low, high in zip(reversed(before), reversed(after), strict=True):
        widths += [low, high]
    return F.pad(x, widths, value=value)
