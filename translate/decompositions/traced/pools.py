"""Pooling axis by axis: pools of volumes as pools of images, adaptive pools as slices.

A pooling window is a box, so its mean or maximum is computed along one axis after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def avg_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Average images, then along the depth: the element count of a box is a product of counts."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    kernel, stride, padding = _of_axes(3, kernel_size, stride or kernel_size, padding)
    pool = torch.nn.functional.avg_pool2d
    if divisor_override:
        x = _with_edges(x, kernel, stride, padding, ceil_mode)
        share = kernel[0] * kernel[1] * kernel[2] / divisor_override
        return torch.nn.functional.avg_pool3d(x, kernel, stride) * share
    *batch, channels, depth, height, width = x.shape
    how = (ceil_mode, count_include_pad)
    images = x.reshape(*batch, channels * depth, height, width)
    images = pool(images, kernel[1:], stride[1:], padding[1:], *how)
    sizes = images.shape[-2:]
    columns = images.reshape(*batch, channels, depth, sizes[0] * sizes[1])
    columns = pool(columns, (kernel[0], 1), (stride[0], 1), (padding[0], 0), *how)
    return columns.reshape(*batch, channels, columns.shape[-2], *sizes)


def avg_pool2d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Apply a divisor override as a factor, which requires that every window is complete."""
    if not divisor_override or not x.dtype.is_floating_point:
        return NotImplemented
    kernel, stride, padding = _of_axes(2, kernel_size, stride or kernel_size, padding)
    x = _with_edges(x, kernel, stride, padding, ceil_mode)
    share = kernel[0] * kernel[1] / divisor_override
    return torch.nn.functional.avg_pool2d(x, kernel, stride) * share


def _of_axes(rank: int, *lists: Sequence[int]) -> list[tuple[int, ...]]:
    """Expand a parameter list to one number per axis; a single number is for all axes."""
    return [tuple(given) if len(given) == rank else (given[0],) * rank for given in lists]


def _with_edges(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
) -> Tensor:
    """Pad with the zeros that windows read."""
    amounts: list[int] = []
    sizes = x.shape[-len(kernel) :]
    for size, span, step, pad in zip(sizes, kernel, stride, padding, strict=True):
        left = size + 2 * pad - span
        count = (left + step - 1 if ceil_mode else left) // step + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1
        behind = (count - 1) * step + span - size - pad
        amounts = [pad, max(behind, 0), *amounts]
    return torch.constant_pad_nd(x, amounts) if any(amounts) else x


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """Return (start, length) of the windows of an adaptive pool along an axis."""
    starts = [at * size // count for at in range(count)]
    ends = [-(-(at + 1) * size // count) for at in range(count)]
    return [(start, end - start) for start, end in zip(starts, ends, strict=True)]


def by_windows(x: Tensor, axis: int, count: int, reduce: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Reduce an axis in `count` adaptive windows by `reduce(x, axis)`."""
    size = x.shape[axis]
    if count and size % count == 0:
        return reduce(x.unflatten(axis, (count, size // count)), axis + 1)
    parts = [x.narrow(axis, start, length) for start, length in windows(size, count)]
    return torch.stack([reduce(part, axis) for part in parts], axis)


def adaptive_avg_pool3d(x: Tensor, output_size: Sequence[int]) -> Any:
    """Pool the depth first, then the images."""
    if min(output_size) == 0 or x.numel() == 0:
        return NotImplemented
    axis = x.dim() - 3
    means = by_windows(x, axis, output_size[0], lambda part, at: part.mean(at))
    images = means.reshape(*x.shape[: axis - 1], -1, *x.shape[-2:])
    images = torch.nn.functional.adaptive_avg_pool2d(images, (output_size[1], output_size[2]))
    return images.reshape(*x.shape[:axis], *output_size)


def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return maxima and their flat indices within a channel; the first of equal elements."""
    rank = len(output_size)
    first = x.dim() - rank
    if not all(type(size) is int for size in (*output_size, *x.shape[first:])):
        return _adaptive_max_pool_of_any(x, output_size)
    if min(output_size) == 0 or x.numel() == 0:
        return NotImplemented
    values, tracked = x, x
    for axis in reversed(range(first, x.dim())):
        values = by_windows(values, axis, output_size[axis - first], lambda part, at: part.amax(at))
    places, stride = None, 1
    for axis in reversed(range(first, x.dim())):
        count, size = output_size[axis - first], x.shape[axis]
        tensors: list[Tensor] = []
        numbers: list[Tensor] = []
        for start, length in windows(size, count):
            part = tracked.narrow(axis, start, length)
            at = torch.argmax(part, axis, keepdim=True)
            place = (at + start) * stride
            if places is not None:
                place = place + torch.gather(places.narrow(axis, start, length), axis, at)
            tensors.append(torch.gather(part, axis, at))
            numbers.append(place)
        tracked, places = torch.cat(tensors, axis), torch.cat(numbers, axis)
        stride *= size
    return values, places


def _adaptive_max_pool_of_any(x: Tensor, output_size: Sequence[int]) -> Any:
    """Compute `adaptive_max_pool` of dynamic sizes; each window reads as many indices as the
    longest one.

    A shorter window repeats its last index, which does not change its maximum.
    """
    first = x.dim() - len(output_size)
    values, places = x, None
    stride: Any = 1
    for axis in reversed(range(first, x.dim())):
        count, size = output_size[axis - first], x.shape[axis]
        longest = (size + count - 1) // count + 1
        windows = torch.arange(count).unsqueeze(-1)
        starts = torch.div(windows * size, count, rounding_mode="floor")
        ends = torch.div((windows + 1) * size + (count - 1), count, rounding_mode="floor")
        taken = torch.minimum(starts + torch.arange(longest), ends - 1)
        parts = _taken(values, axis, taken)
        at = torch.argmax(parts, axis + 1, keepdim=True)
        numbers = taken.reshape(*taken.shape, *(1,) * (x.dim() - axis - 1)) * stride
        if places is not None:
            numbers = numbers + _taken(places, axis, taken)
        places = torch.gather(numbers.expand(parts.shape), axis + 1, at).squeeze(axis + 1)
        values = parts.amax(axis + 1)
        stride = stride * size
    return values, places


def _taken(x: Tensor, axis: int, places: Tensor) -> Tensor:
    return aten.index.Tensor(x, [*(None,) * axis, places])


def fractional_max_pool(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], samples: Tensor
) -> Any:
    """Gather windows axis by axis, at positions from a random number per channel."""
    rank = len(output_size)
    first = x.dim() - rank
    leading = x.shape[:first]
    samples = samples if x.dim() > rank + 1 else samples.reshape(leading[0], rank)
    samples = samples.flip(-1) if rank == 2 else samples
    sizes = x.shape[first:]
    tracked = x
    numbers = torch.arange(x[(0,) * first].numel()).reshape(sizes).expand(x.shape)
    for axis in reversed(range(rank)):
        size, count, length = sizes[axis], output_size[axis], kernel_size[axis]
        drawn = samples[..., axis].unsqueeze(-1)
        if count > 1:
            alpha = (size - length) / (count - 1)
            steps = torch.arange(count).to(drawn.dtype)
            starts = ((steps + drawn) * alpha).to(torch.int64)
            starts = starts - (drawn * alpha).to(torch.int64)
        else:
            starts = torch.zeros_like(drawn, dtype=torch.int64)
        last = torch.eq(torch.arange(count), count - 1)
        starts = torch.where(last, torch.full_like(starts, size - length), starts)
        places = (starts.unsqueeze(-1) + torch.arange(length)).flatten(-2)
        at = first + axis
        shape = [*leading, *(1,) * axis, count * length, *(1,) * (rank - 1 - axis)]
        index = places.reshape(shape)
        others = [*tracked.shape]
        others[at] = count * length
        index = index.expand(others)
        tracked = torch.gather(tracked, at, index).unflatten(at, (count, length))
        numbers = torch.gather(numbers, at, index).unflatten(at, (count, length))
        best = torch.argmax(tracked, at + 1, keepdim=True)
        tracked = torch.gather(tracked, at + 1, best).squeeze(at + 1)
        numbers = torch.gather(numbers, at + 1, best).squeeze(at + 1)
    return tracked, numbers


POOLS: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d.default: avg_pool2d,
    aten.avg_pool3d.default: avg_pool3d,
    aten.adaptive_avg_pool3d.default: adaptive_avg_pool3d,
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool3d,
    aten.adaptive_max_pool1d.default: adaptive_max_pool,
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.fractional_max_pool2d.default: fractional_max_pool,
    aten.fractional_max_pool3d.default: fractional_max_pool,
}
"""Operator → its decomposition."""
