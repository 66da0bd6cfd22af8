"""The dimension order of a spatial operator: NCHW (channels-last in memory) or NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepwell.ir.axes.maps import Along, Flat, Link, Links
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import Dim

NCHW_TO_NHWC, NHWC_TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def nhwc_shape(shape: tuple[Dim, ...], is_nhwc: bool) -> tuple[Dim, ...]:
    """Convert a shape from an operator's layout to NHWC."""
    return shape if is_nhwc else tuple(shape[axis] for axis in NCHW_TO_NHWC)


def own_shape(nhwc: tuple[Dim, ...], is_nhwc: bool) -> tuple[Dim, ...]:
    """Convert an NHWC shape to an operator's layout."""
    return nhwc if is_nhwc else tuple(nhwc[axis] for axis in NHWC_TO_NCHW)


def window_links(
    reach: Sequence[int], stride: Sequence[int], padding: Sequence[int], channels: Link, nhwc: bool
) -> Links:
    """Build the axis links of an image operand for a window of `reach` over its height and width.

    `channels` is the link of the channels; it is put at the position of the layout.
    """
    windows = zip((1, 2), stride, padding, reach, strict=True)
    return placed((Along(0), *(Along(a, s, -p, r) for a, s, p, r in windows), channels), nhwc)


def placed(links: Links, nhwc: bool) -> Links:
    """Convert axis links between NHWC images to those between images of an operator's layout."""
    return links if nhwc else tuple(own_link(links[axis], nhwc) for axis in NHWC_TO_NCHW)


def own_link(link: Link, nhwc: bool) -> Link:
    """Convert a link to an axis of an NHWC result to a link to the same axis of a result
    in an operator's layout.
    """
    if nhwc or isinstance(link, Flat) or link.axis is None:
        return link
    return replace(link, axis=NHWC_TO_NCHW.index(link.axis))


def spatial_size(
    size: Dim, kernel: int, stride: int, padding: int, dilation: int, ceil: bool = False
) -> Dim:
    """Count the windows along an axis: floor or ceil of (size + 2·padding − reach) / stride, plus
    1.

    With `ceil`, a window that would start in the padding after the last cell is dropped, as in
    torch. Unknown sizes stay unknown.
    """
    if not isinstance(size, int):
        return UNKNOWN
    slack = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return slack // stride + 1
    count = -(-slack // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def to_nhwc(value: torch.Tensor, is_nhwc: bool) -> torch.Tensor:
    """Convert a tensor from an operator's layout to NHWC."""
    return value if is_nhwc else value.permute(NCHW_TO_NHWC)


def from_nhwc(value: torch.Tensor, is_nhwc: bool) -> torch.Tensor:
    """Convert an NHWC tensor to an operator's layout."""
    return value if is_nhwc else value.permute(NHWC_TO_NCHW)
