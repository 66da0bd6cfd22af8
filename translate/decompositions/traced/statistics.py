"""Decompositions of variances and group norms into means.

PyTorch would decompose them into operators that are not ATen's, or it keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def variance(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Compute the sum of squares around the mean, over their number less the correction."""
    axes, lost = _axes(x, dim), 1 if correction is None else correction
    centered = x - x.mean(axes, True)
    count = prod(x.shape[axis] for axis in axes)
    return (centered * centered).sum(axes, keepdim) / (count - lost)


def _axes(x: Tensor, dim: Any) -> list[int]:
    return list(dim) if dim else list(range(x.dim()))


def variance_and_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the variance and the mean."""
    mean = x.mean(_axes(x, dim), keepdim)
    return variance(x, dim, correction=correction, keepdim=keepdim), mean


def native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose group norm into means of rows (the groups); also return means and scales."""
    rows = x.reshape(n, groups, -1)
    mean = rows.mean([2], True)
    centered = rows - mean
    scale = torch.rsqrt((centered * centered).mean([2], True) + eps)
    made = (centered * scale).reshape(x.shape)
    made = made if weight is None else made * of_channels(weight, x)
    made = made if bias is None else made + of_channels(bias, x)
    return made, mean.reshape(n, groups), scale.reshape(n, groups)


def of_channels(parameter: Tensor, x: Tensor) -> Tensor:
    """Reshape a parameter with one number per channel so that it broadcasts to images."""
    return parameter.reshape(1, -1, *([1] * (x.dim() - 2)))


STATISTICS: Mapping[Any, Callable[..., Any]] = {
    aten.var.correction: variance,
    aten.var_mean.correction: variance_and_mean,
    aten.native_group_norm.default: native_group_norm,
}
