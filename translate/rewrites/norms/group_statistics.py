"""Means over the channels of a group, by pooling planes and a convolution within each group."""

from __future__ import annotations

from math import prod

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.rewrites.building import emit, permute, put, reduced, slice_axis
from stepwell.translate.rewrites.norms.row_statistics import row_mean


def summed_up(shape: tuple[Dim, ...], groups: int) -> int:
    """The most elements a constant may sum: of a group, or of a group's channels of planes."""
    behind = shape[1:2] if len(shape) == 4 else shape[1:]
    return prod(d for d in behind if isinstance(d, int)) // groups


def mean_of_planes(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Build `mean(value, [2, 3], keepdim)`; `[N, C, H, W]` to `[N, C, 1, 1]`."""
    return reduced(rw, aten.MeanDim, value, [2, 3])


def mean_of_image(rw: Rewriter, value: SSAValue, plus: float | None = None) -> SSAValue:
    """Build `mean(value, [1, 2, 3], keepdim) + plus`; `[N, C, H, W]` to `[N, 1, 1, 1]`."""
    return row_mean(rw, permute(rw, mean_of_planes(rw, value), [0, 2, 3, 1]), plus)


def mean_of_group(
    groups: int, rw: Rewriter, value: SSAValue, plus: float | None = None
) -> SSAValue:
    """Build the mean of each channel's group, plus a number; `[N, C, H, W]` to `[N, C, 1, 1]`."""
    planes = mean_of_planes(rw, value)
    dtype = torch_dtype(element(value.type))
    channels = dims(value.type)[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    width = channels // groups
    if width == 1:  # A window would read neighbors too.
        if plus is None:
            return planes
        return put(rw, aten.AddScalar, planes, plus)
    kernel = torch.full((channels, width, 1, 1), 1.0 / width, dtype=dtype)
    bias = None
    if plus is not None:
        bias = rw.constant(torch.full((channels,), plus, dtype=dtype), "epsilon")
    return in_groups(rw, planes, rw.constant(kernel, "group_mean"), bias, groups)


def first_of_groups(rw: Rewriter, value: SSAValue, groups: int) -> SSAValue:
    """Return the first element of each channel's group; `[N, C, H, W]` to `[N, C or 1, 1, 1]`."""
    channels = dims(value.type)[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    corner = slice_axis(rw, slice_axis(rw, value, 2, 0, 1), 3, 0, 1)
    if groups in (1, channels):
        return corner if groups == channels else slice_axis(rw, corner, 1, 0, 1)
    kernel = torch.zeros(
        (channels, channels // groups, 1, 1), dtype=torch_dtype(element(value.type))
    )
    kernel[:, 0] = 1
    return in_groups(rw, corner, rw.constant(kernel, "group_first"), None, groups)


def in_groups(
    rw: Rewriter, planes: SSAValue, kernel: SSAValue, bias: SSAValue | None, groups: int
) -> SSAValue:
    """Build a convolution of planes of one pixel in which a channel reads its own group."""
    layer = aten.ConvolutionDefault.make(
        planes,
        kernel,
        bias,
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        groups,
        result_types=[planes.type],
    )
    return emit(rw, layer)


def cannot_be_grouped(shape: tuple[Dim, ...]) -> Refusal | None:
    """Pooling averages planes of any size; other sums need static sizes."""
    if all(isinstance(d, int) for d in shape[1 : 2 if len(shape) == 4 else None]):
        return None
    return Refusal("the channels, or sizes behind the channels of no image, are symbolic")
