"""Scatters at computed indices, by comparing every position with every index.

The runtime has kernels that write and that add. A maximum, a product or a count compares each
position with all indices, which is limited to `MOST` comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stepwell.translate.decompositions.traced.arithmetic import within

aten = torch.ops.aten

MOST = 2**24
"""The most comparisons of a position with an index."""


def neutral(reduce: str, dtype: torch.dtype) -> float:
    """Return the neutral element of a reduction."""
    if reduce in ("amax", "amin"):
        if dtype.is_floating_point:
            return -math.inf if reduce == "amax" else math.inf
        limits = torch.iinfo(dtype)
        return limits.min if reduce == "amax" else limits.max
    return 1 if reduce == "prod" else 0


REDUCE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, axis: torch.sum(x, axis),
    "prod": lambda x, axis: torch.prod(x, axis),
    "amax": lambda x, axis: torch.amax(x, axis),
    "amin": lambda x, axis: torch.amin(x, axis),
}
COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "amax": lambda x, found: torch.clamp(x, min=found),
    "amin": lambda x, found: torch.clamp(x, max=found),
}
"""The function that combines the old and the new number. Limits by tensors keep every NaN on each
engine; a maximum need not.
"""


def checked(index: Tensor, size: int) -> Tensor:
    """Return an index that a look-up verifies to be in [0, size): its kernel refuses others.

    PyTorch raises an error for other indices, but comparisons would ignore them or accept negative
    ones.
    """
    flat = index.reshape(-1).to(torch.int64)
    return torch.index_select(torch.arange(size), 0, flat).reshape(index.shape)


def one_hot(index: Tensor, num_classes: int = -1) -> Any:
    """Return a one-hot encoding of an index for a given number of classes."""
    if num_classes < 1 or not index.numel():
        return NotImplemented
    places = torch.arange(num_classes)
    return torch.eq(checked(index, num_classes).unsqueeze(-1), places).to(torch.int64)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Write slices at indices along an axis."""
    if x.dim() == 0:
        return NotImplemented
    dim %= x.dim()
    indices = [None] * dim + [checked(index, x.shape[dim])]
    return torch.ops.aten.index_put.default(x, indices, source)


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    """Write one number at indices along an axis; negative indices count from its end."""
    if x.dim() == 0:
        return NotImplemented
    number = torch.full([], value, dtype=x.dtype) if not isinstance(value, Tensor) else value
    indices = [None] * (dim % x.dim()) + [index]
    return torch.ops.aten.index_put.default(x, indices, number.to(x.dtype))


def scatter_reduce(
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Combine numbers with the elements at their indices by a sum, product, mean or extremum."""
    if x.dtype == torch.bool:
        return NotImplemented
    if x.dim() == 0:
        flat = (index.reshape(1), src.reshape(1))
        row = scatter_reduce(x.reshape(1), 0, *flat, reduce, include_self=include_self)
        return row.reshape(())
    if index.numel() == 0:
        return x.clone()
    dim %= x.dim()
    src = _first(src, index.shape)
    if reduce in ("sum", "mean"):
        return _summed(x, dim, index, src, reduce == "mean", include_self)
    return _compared(x, dim, index, src, reduce, include_self)


def _compared(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """Compare every position with every index along the axis."""
    within(index.numel() * x.shape[dim], MOST)
    index = checked(index, x.shape[dim])
    places = torch.arange(x.shape[dim]).unsqueeze(-1)
    is_here = torch.eq(index.transpose(dim, -1).unsqueeze(-2), places)
    written = src.transpose(dim, -1).unsqueeze(-2)
    start = neutral(reduce, x.dtype)
    nothing = torch.full([], start, dtype=x.dtype)
    found = REDUCE[reduce](torch.where(is_here, written, nothing), -1).transpose(dim, -1)
    is_hit = torch.any(is_here, -1).transpose(dim, -1)
    shape = [x.shape[axis] if axis == dim else index.shape[axis] for axis in range(x.dim())]
    mine = _first(x, shape)
    made = COMBINE[reduce](mine, found) if include_self else found
    return _over(x, torch.where(is_hit, made, mine))


def _first(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the leading part of a tensor that has the given shape."""
    for axis, size in enumerate(shape):
        if x.shape[axis] != size:
            x = x.narrow(axis, 0, size)
    return x


def _over(x: Tensor, corner: Tensor) -> Tensor:
    """Return `x` in which the leading part, of the size of `corner`, is replaced by `corner`."""
    for axis in reversed(range(x.dim())):
        size = corner.shape[axis]
        if size != x.shape[axis]:
            rest = _first(x.narrow(axis, size, x.shape[axis] - size), _behind(corner, x, axis))
            corner = torch.cat([corner, rest], axis)
    return corner


def _behind(corner: Tensor, x: Tensor, axis: int) -> list[int]:
    shape = [*corner.shape]
    shape[axis] = x.shape[axis] - corner.shape[axis]
    return shape


def _summed(
    x: Tensor, dim: int, index: Tensor, src: Tensor, is_mean: bool, include_self: bool
) -> Any:
    """Sum the numbers at each index with the runtime's kernel that adds; count by adding ones."""
    start = x
    ones = torch.ones_like(src)
    if not include_self:
        is_kept = torch.scatter(torch.ones_like(x), dim, index, 0.0 if _is_float(x) else 0)
        start = torch.where(torch.ne(is_kept, 0), x, torch.zeros_like(x))
    total = torch.scatter_add(start, dim, index, src)
    if not is_mean:
        return total
    counts = torch.full_like(x, 1 if include_self else 0)
    counts = torch.clamp(torch.scatter_add(counts, dim, index, ones), min=1)
    return total / counts if _is_float(x) else torch.div(total, counts, rounding_mode="floor")


def _is_float(x: Tensor) -> bool:
    return x.dtype.is_floating_point


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """Add at indices by comparing each position with all indices, without a kernel that adds."""
    if x.dtype == torch.bool or not index.numel():
        return NotImplemented
    if x.dim() == 0:
        row = _compared(x.reshape(1), 0, index.reshape(1), src.reshape(1), "sum", True)
        return row.reshape(())
    return _compared(x, dim % x.dim(), index, _first(src, index.shape), "sum", True)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    """Add slices at indices along an axis."""
    if x.dtype == torch.bool:
        return NotImplemented
    if x.dim() == 0:
        added = source.reshape(-1).sum()
        return x + (added if alpha == 1 else added * alpha)
    source = source if alpha == 1 else source * alpha
    dim %= x.dim()
    indices = [None] * dim + [checked(index, x.shape[dim])]
    return torch.ops.aten.index_put.default(x, indices, source.to(x.dtype), True)


def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """Add at indices: flatten the leading axes' indices and use `scatter_add`."""
    known = [index for index in indices if index is not None]
    is_whole = len(known) == len(indices) and all(i.dtype != torch.bool for i in known)
    if not accumulate or not is_whole or x.dtype == torch.bool or x.numel() == 0:
        return NotImplemented
    sizes, rest = x.shape[: len(known)], x.shape[len(known) :]
    place = None
    for index, size in zip(torch.broadcast_tensors(*known), sizes, strict=True):
        from_start = torch.where(torch.lt(index, 0), index + size, index)
        place = from_start if place is None else place * size + from_start
    assert place is not None
    written = values.expand(*place.shape, *rest).reshape(place.numel(), -1)
    rows = x.reshape(math.prod(sizes), -1)
    index = place.reshape(-1, 1).expand(written.shape)
    return _compared(rows, 0, index, written, "sum", True).reshape(x.shape)


def scatter_of(x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Any:
    """Add or multiply numbers at indices."""
    named = {"add": "sum", "multiply": "prod"}[reduce]
    return scatter_reduce(x, dim, index, src, named)


def scatter_value_of(x: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Any:
    """Add or multiply one number at indices."""
    return scatter_of(x, dim, index, torch.full(index.shape, value, dtype=x.dtype), reduce=reduce)


def index_reduce(
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Reduce slices at indices along an axis."""
    if x.dim() == 0:
        flat = (index.reshape(-1), source.reshape(-1))
        row = index_reduce(x.reshape(1), 0, *flat, reduce, include_self=include_self)
        return row.reshape(())
    shape = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    index = index.to(torch.int64).reshape(shape).expand(source.shape)
    return scatter_reduce(x, dim, index, source, reduce, include_self=include_self)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write numbers at indices of the flattened tensor."""
    places = index.reshape(-1)
    row = torch.index_put(x.reshape(-1), [places], source.reshape(-1), accumulate)
    return row.reshape(x.shape)


def diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Replace a diagonal: a mask chooses the elements whose column - row equals `offset`."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    images = x.movedim((dim1, dim2), (-2, -1))
    row = torch.arange(rows).unsqueeze(-1)
    column = torch.arange(columns)
    if src.numel() == 0:
        return x.clone()
    place = torch.clamp(torch.arange(rows) + min(offset, 0), 0, src.shape[-1] - 1)
    spread = torch.index_select(src, -1, place).unsqueeze(-1)
    chosen = torch.where(torch.eq(column - row, offset), spread, images)
    return chosen.movedim((-2, -1), (dim1, dim2))


def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None
) -> Any:
    """Write a tensor at the positions, in row-major memory, that strides describe."""
    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented
    places = torch.full([], storage_offset or 0, dtype=torch.int64)
    for count, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(count) * step
    return put(x, places, src)


def segment_reduce(
    x: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Reduce segments of rows, by comparing each segment with every row."""
    axis %= x.dim()
    if offsets is None and lengths is not None:
        ends = torch.cumsum(lengths, axis)
        starts = ends - lengths
    elif offsets is not None:
        runs = offsets.shape[axis] - 1
        starts, ends = offsets.narrow(axis, 0, runs), offsets.narrow(axis, 1, runs)
    else:
        return NotImplemented
    count = x.shape[axis]
    if not count:
        return NotImplemented
    within(starts.numel() * x[(0,) * axis].numel(), MOST)
    numbers = torch.arange(count)
    is_mine = torch.logical_and(
        torch.ge(numbers, starts.unsqueeze(-1)), torch.lt(numbers, ends.unsqueeze(-1))
    )
    rest = x.dim() - axis - 1
    is_mine = is_mine.reshape(*is_mine.shape, *(1,) * rest)
    named = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    start = neutral(named, x.dtype)
    rows = torch.where(is_mine, x.unsqueeze(axis), torch.full([], start, dtype=x.dtype))
    at = axis + 1
    made = REDUCE[named](rows, at) if named in REDUCE else rows.sum(at)
    sizes = (ends - starts).reshape(*starts.shape, *(1,) * rest)
    if initial is not None and named in COMBINE:
        made = COMBINE[named](made, torch.full([], initial, dtype=x.dtype))
    elif initial is not None:
        made = made + initial
    if named == "mean":
        shared = made / torch.clamp(sizes, min=1).to(x.dtype)
        without = torch.full_like(made, math.nan if initial is None else initial)
        made = torch.where(torch.gt(sizes, 0), shared, without)
    return made


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Count the numbers in equal intervals; the last interval includes its upper end."""
    flat = x.reshape(-1)
    if not _is_float(x) or flat.numel() == 0:
        return NotImplemented
    within(flat.numel() * bins, MOST)
    if min == max:
        low, high = torch.amin(flat), torch.amax(flat)
        is_one = torch.eq(low, high)
        low = torch.where(is_one, low - 1, low)
        high = torch.where(is_one, high + 1, high)
    else:
        low, high = (torch.full([], end, dtype=x.dtype) for end in (min, max))
    place = torch.floor((flat - low) * (bins / (high - low)))
    place = torch.where(torch.eq(place, bins), place - 1, place)
    is_within = torch.logical_and(torch.ge(flat, low), torch.le(flat, high))
    place = torch.where(is_within, place, torch.full([], -1, dtype=x.dtype))
    numbers = torch.arange(bins).to(x.dtype).unsqueeze(-1)
    return torch.eq(place, numbers).to(x.dtype).sum(-1)


def histogram_of_bins(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> Any:
    """Count the numbers in given intervals; the last interval includes its upper end."""
    flat = x.reshape(-1)
    count = bins.shape[0] - 1
    if not flat.numel():
        return NotImplemented
    within(flat.numel() * count, MOST)
    starts = bins.narrow(0, 0, count).unsqueeze(-1)
    ends = bins.narrow(0, 1, count).unsqueeze(-1)
    is_last = torch.eq(torch.arange(count), count - 1).unsqueeze(-1)
    is_below = torch.logical_or(
        torch.lt(flat, ends), torch.logical_and(is_last, torch.eq(flat, ends))
    )
    is_here = torch.logical_and(torch.ge(flat, starts), is_below).to(x.dtype)
    held = is_here if weight is None else is_here * weight.reshape(-1)
    found = held.sum(-1)
    if density:
        found = found / (bins.narrow(0, 1, count) - bins.narrow(0, 0, count)) / found.sum()
    return found, bins.clone()


def histogram_of_count(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """Count in equal intervals between the given ends, or between the minimum and the maximum."""
    steps = torch.arange(bins + 1).to(x.dtype)
    if range is None:
        low, high = torch.amin(x.reshape(-1)), torch.amax(x.reshape(-1))
        is_one = torch.eq(low, high)
        low, high = torch.where(is_one, low - 0.5, low), torch.where(is_one, high + 0.5, high)
    else:
        ends = range if range[0] != range[1] else (range[0] - 0.5, range[1] + 0.5)
        low, high = (torch.full([], end, dtype=x.dtype) for end in ends)
    step = (high - low) / bins
    edges = torch.where(
        torch.lt(steps, (bins + 1) // 2), low + step * steps, high - step * (bins - steps)
    )
    return histogram_of_bins(x, edges, weight=weight, density=density)


SCATTERS: dict[Any, Callable[..., Any]] = {
    aten.scatter_reduce.two: scatter_reduce,
    aten.scatter.reduce: scatter_of,
    aten.scatter_add.default: scatter_add,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.one_hot.default: one_hot,
    aten.index_put.default: index_put,
    aten.scatter.value_reduce: scatter_value_of,
    aten.index_reduce.default: index_reduce,
    aten.put.default: put,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.segment_reduce.default: segment_reduce,
    aten.histc.default: histc,
    aten.histogram.bins_tensor: histogram_of_bins,
    aten.histogram.bin_ct: histogram_of_count,
}
"""Operator → its decomposition."""
