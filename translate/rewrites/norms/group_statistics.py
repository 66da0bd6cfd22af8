"""Compute means over the channels of a group: pool planes, then convolve within each group."""

from __future__ import annotations

from math import prod

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim
from stepwell.translate.decompositions.values import Value
from stepwell.translate.rewrites.norms.row_statistics import row_mean


def summed_up(shape: tuple[Dim, ...], groups: int) -> int:
    """Return how many elements a constant sums: a group's channels, or its elements if not an
    image.
    """
    behind = shape[1:2] if len(shape) == 4 else shape[1:]
    return prod(d for d in behind if isinstance(d, int)) // groups


def mean_of_image(value: Value, plus: float | None = None) -> Value:
    """Build `mean(value, [1, 2, 3], keepdim) + plus`; `[N, C, H, W]` to `[N, 1, 1, 1]`."""
    return row_mean(value.reduce(aten.MeanDim, [2, 3]).permute([0, 2, 3, 1]), plus)


def mean_of_group(groups: int, value: Value, plus: float | None = None) -> Value:
    """Build the mean of each channel's group, plus a number; `[N, C, H, W]` to `[N, C, 1, 1]`."""
    planes, channels = value.reduce(aten.MeanDim, [2, 3]), value.shape[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    width = channels // groups
    if width == 1:  # A window would read neighbors too.
        return planes if plus is None else planes + plus
    kernel = torch.full((channels, width, 1, 1), 1.0 / width, dtype=torch_dtype(value.dtype))
    bias = None
    if plus is not None:
        bias = value.constant(torch.full((channels,), plus, dtype=kernel.dtype), "epsilon")
    return in_groups(planes, value.constant(kernel, "group_mean"), bias, groups)


def first_of_groups(value: Value, groups: int) -> Value:
    """Return the first element of each channel's group; `[N, C, H, W]` to `[N, C or 1, 1, 1]`."""
    channels = value.shape[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    corner = value.slice(2, 0, 1).slice(3, 0, 1)
    if groups in (1, channels):
        return corner if groups == channels else corner.slice(1, 0, 1)
    kernel = torch.zeros((channels, channels // groups, 1, 1), dtype=torch_dtype(value.dtype))
    kernel[:, 0] = 1
    return in_groups(corner, value.constant(kernel, "group_first"), None, groups)


def in_groups(planes: Value, kernel: Value, bias: Value | None, groups: int) -> Value:
    """Build a grouped convolution of one-pixel planes in which a channel reads its own group."""
    window = [1, 1], [0, 0], [1, 1], False, [0, 0]
    return planes.call(aten.ConvolutionDefault, kernel, bias, *window, groups)


def cannot_be_grouped(shape: tuple[Dim, ...]) -> Refusal | None:
    """Refuse symbolic sizes, except for planes, which pooling averages at any size."""
    if all(isinstance(d, int) for d in shape[1 : 2 if len(shape) == 4 else None]):
        return None
    return Refusal(
        "the channels, or the sizes after the channels of a tensor that is not an image, are symbolic"
    )
