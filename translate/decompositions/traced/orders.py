"""Sorting and order statistics: a sort is a top-k of all elements; positions are counts.

Equal numbers keep their order, as in PyTorch's CPU kernels, up to `MOST` comparisons. Beyond that,
`sort` without `stable=True` makes no promise about equal numbers and has the order of top-k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.lazy_imports import symbolic_shapes
from stepwell.translate.decompositions.traced.arithmetic import within

aten = torch.ops.aten

MOST = 2**22
"""The most comparisons (each number with each) that counting positions may take."""


def _itself(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scalar as its own extremum, with index 0."""
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)


def _kept(found: tuple[Tensor, Tensor], dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return values and indices; the reduced axis of length 1 is kept or removed."""
    value, place = found
    return found if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _places_along(x: Tensor, dim: int) -> Tensor:
    """Return 0, 1, … along an axis, broadcast to the shape of x."""
    shape = [x.shape[dim] if axis == dim else 1 for axis in range(x.dim())]
    return torch.arange(x.shape[dim]).reshape(shape).expand(x.shape)


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Return the sorted numbers and their original indices."""
    return stable_sort(x, stable=False, dim=dim, descending=descending)


def stable_sort(
    x: Tensor, *, stable: bool | None = False, dim: int = -1, descending: bool = False
) -> Any:
    """Return the sorted numbers and their original indices; equal numbers keep their order."""
    if x.dim() == 0:
        return _itself(x)
    dim %= x.dim()
    count = x.shape[dim]
    if x.numel() == 0:
        return NotImplemented
    held = x.to(torch.uint8) if x.dtype == torch.bool else x
    values, places = torch.topk(held, count, dim, descending, True)
    values = values.to(x.dtype)
    if x.numel() * count > MOST and not stable:
        return values, places
    within(x.numel() * count, MOST)
    rank = _places(x, dim, descending)
    numbers = _places_along(x, dim)
    return values, torch.scatter(torch.zeros_like(numbers).clone(), dim, rank, numbers)


def _places(x: Tensor, dim: int, descending: bool) -> Tensor:
    """Return each element's rank: the number of smaller elements, and equal ones with lower
    index.
    """
    count = x.shape[dim]
    rows = x.transpose(dim, -1)
    mine, other = rows.unsqueeze(-1), rows.unsqueeze(-2)
    is_before = torch.gt(other, mine) if descending else torch.lt(other, mine)
    is_equal = torch.eq(other, mine)
    if x.dtype.is_floating_point:  # NaN is the largest.
        mine_nan, other_nan = torch.isnan(mine), torch.isnan(other)
        one, two = (other_nan, mine_nan) if descending else (mine_nan, other_nan)
        is_before = torch.logical_or(is_before, torch.logical_and(one, torch.logical_not(two)))
        is_equal = torch.logical_or(is_equal, torch.logical_and(mine_nan, other_nan))
    numbers = torch.arange(count)
    is_earlier = torch.lt(numbers, numbers.unsqueeze(-1))
    is_before = torch.logical_or(is_before, torch.logical_and(is_equal, is_earlier))
    return counted(is_before).transpose(dim, -1)


def counted(truths: Tensor) -> Tensor:
    """Count the true elements along the last axis."""
    return truths.sum(-1)


def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Return the original indices of the sorted numbers."""
    return torch.sort(x, dim, descending)[1]


def stable_argsort(
    x: Tensor, *, stable: bool = False, dim: int = -1, descending: bool = False
) -> Any:
    """Return the original indices of the sorted numbers; equal numbers keep their order."""
    return torch.sort(x, dim=dim, descending=descending, stable=stable)[1]


def msort(x: Tensor) -> Tensor:
    """Sort along the first axis."""
    return torch.sort(x, 0)[0]


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the k-th smallest number and its index."""
    if x.dim() == 0:
        return _itself(x)
    values, places = torch.sort(x, dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return _kept(found, dim, keepdim)


def median_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the lower median and its index; NaN if any element is NaN."""
    if x.dim() == 0:
        return _itself(x)
    if not x.shape[dim]:
        return NotImplemented
    value, place = kthvalue(x, (x.shape[dim] + 1) // 2, dim, True)
    if x.dtype.is_floating_point:
        is_nan = torch.isnan(x)
        has_nan = torch.any(is_nan, dim, keepdim=True)
        value = torch.where(has_nan, torch.full_like(value, math.nan), value)
        first = torch.argmax(is_nan.to(torch.int64), dim, keepdim=True)
        place = torch.where(has_nan, first, place)
    return _kept((value, place), dim, keepdim)


def median(x: Tensor) -> Any:
    """Return the median of all elements."""
    return torch.median(x.reshape(-1), 0)[0]


def nanmedian_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the median of the elements other than NaN, which sorting puts last."""
    if not x.dtype.is_floating_point:
        return torch.median(x, dim, keepdim)
    if x.dim() == 0:
        return _itself(x)
    if not x.shape[dim]:
        return NotImplemented
    values, places = torch.sort(x, dim)
    numbers = torch.logical_not(torch.isnan(x)).sum(dim, keepdim=True)
    at = torch.clamp((numbers + 1) // 2 - 1, min=0)
    value, place = torch.gather(values, dim, at), torch.gather(places, dim, at)
    return _kept((value, place), dim, keepdim)


def nanmedian(x: Tensor) -> Any:
    """Return the median of all elements other than NaN."""
    return torch.nanmedian(x.reshape(-1), 0)[0]


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent number (the smallest of several) and its last index."""
    if x.dim() == 0:
        return _itself(x)
    if x.numel() == 0:
        return NotImplemented
    within(x.numel() * x.shape[dim], MOST)
    values, places = torch.sort(x, dim=dim, stable=True)
    rows = values.transpose(dim, -1)
    counts = counted(torch.eq(rows.unsqueeze(-1), rows.unsqueeze(-2))).transpose(dim, -1)
    most = torch.argmax(counts, dim, keepdim=True)
    last = most + torch.clamp(torch.gather(counts, dim, most), min=1) - 1
    found = torch.gather(values, dim, most), torch.gather(places, dim, last)
    return _kept(found, dim, keepdim)


def isin(x: Tensor, among: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return whether each number is in `among`, by comparing it with each."""
    found = torch.any(torch.eq(x.unsqueeze(-1), among.reshape(-1)), -1)
    return torch.logical_not(found) if invert else found


def bucketize(
    x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Return each number's bucket: the count of boundaries that are not above it; NaN is last."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def searchsorted(
    bounds: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """Return each value's position: the count of sorted numbers that precede it."""
    within(x.numel() * bounds.shape[-1], MOST)
    bounds = bounds if sorter is None else torch.gather(bounds, -1, sorter)
    result_type = torch.result_type(x, bounds)
    mine, held_bounds = x.to(result_type).unsqueeze(-1), bounds.to(result_type)
    if bounds.dim() > 1:
        held_bounds = held_bounds.unsqueeze(-2)
    is_right = right or side == "right"
    is_behind = torch.gt(held_bounds, mine) if is_right else torch.ge(held_bounds, mine)
    count = counted(torch.logical_not(is_behind))
    return count.to(torch.int32) if out_int32 else count


def _running(x: Tensor, dim: int, is_at_least: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Return the running extremum and its last index, by a scan of steps 1, 2, 4, …."""
    if x.dim() == 0:
        return _itself(x)
    dim %= x.dim()
    count: Any = x.shape[dim]
    if not isinstance(count, int):
        return _running_over_any(x, dim, is_at_least)
    if x.numel() == 0:
        return NotImplemented
    values, places = x, _places_along(x, dim)
    for step in _steps(count):
        rest = count - step
        earlier, mine = values.narrow(dim, 0, rest), values.narrow(dim, step, rest)
        stays = _stays(mine, earlier, is_at_least)
        chosen = torch.where(stays, mine, earlier)
        first, later = places.narrow(dim, 0, rest), places.narrow(dim, step, rest)
        kept = places.narrow(dim, 0, step)
        places = torch.cat([kept, torch.where(stays, later, first)], dim)
        values = torch.cat([values.narrow(dim, 0, step), chosen], dim)
    return values.clone() if values is x else values, places.clone()


def _stays(
    mine: Tensor, earlier: Tensor, is_at_least: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return where the current extremum remains, compared with an earlier element; the first NaN
    stays.
    """
    stays = is_at_least(mine, earlier)
    if not mine.dtype.is_floating_point:
        return stays
    was_nan, is_nan = torch.isnan(earlier), torch.isnan(mine)
    return torch.logical_or(is_nan, torch.logical_and(stays, torch.logical_not(was_nan)))


def _running_over_any(
    x: Tensor, dim: int, is_at_least: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Compute `_running` for a dynamic size; the start is padded with numbers that never win."""
    held = torch.finfo(x.dtype) if x.dtype.is_floating_point else torch.iinfo(x.dtype)
    worst = held.min if is_at_least is torch.ge else held.max
    worst = math.copysign(math.inf, worst) if x.dtype.is_floating_point else worst
    values, places = x, _places_along(x, dim)
    for step in _steps(x.shape[dim]):
        earlier = _before(values, dim, step, worst)
        stays = _stays(values, earlier, is_at_least)
        places = torch.where(stays, places, _before(places, dim, step, 0))
        values = torch.where(stays, values, earlier)
    return values, places


def _steps(count: int | torch.SymInt) -> Iterator[int]:
    """Yield 1, 2, 4, … below the upper bound of a size."""
    step = 1
    while not symbolic_shapes.statically_known_true(count <= step):
        if step > MOST:
            raise NotImplementedError("a size has no bound")
        yield step
        step *= 2


def _before(x: Tensor, dim: int, step: int, fill: float) -> Tensor:
    """Shift x by `step` along an axis, filling the start with `fill`."""
    shape = [step if axis == dim else size for axis, size in enumerate(x.shape)]
    head = torch.full(shape, fill, dtype=x.dtype)
    return torch.cat([head, x], dim).narrow(dim, 0, x.shape[dim])


def cummax(x: Tensor, dim: int) -> Any:
    """Return the running maximum; NaN from the first NaN on."""
    return _running(x, dim, torch.ge)


def cummin(x: Tensor, dim: int) -> Any:
    """Return the running minimum; NaN from the first NaN on."""
    return _running(x, dim, torch.le)


def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Return running log-sum-exps, by a scan of steps 1, 2, 4, …."""
    if x.dim() == 0:
        return x.clone()
    dim %= x.dim()
    count: Any = x.shape[dim]
    if not isinstance(count, int):
        sums = x
        for step in _steps(count):
            sums = _added(_before(sums, dim, step, -math.inf), sums)
        return sums
    if x.numel() == 0:
        return NotImplemented
    sums = x
    for step in _steps(count):
        rest = count - step
        added = _added(sums.narrow(dim, 0, rest), sums.narrow(dim, step, rest))
        sums = torch.cat([sums.narrow(dim, 0, step), added], dim)
    return sums.clone() if sums is x else sums


def _added(one: Tensor, other: Tensor) -> Tensor:
    """Return log(e^one + e^other); within a delegate, the maximum in it may lose a NaN."""
    added = torch.logaddexp(one, other)
    is_nan = torch.logical_or(torch.isnan(one), torch.isnan(other))
    return torch.where(is_nan, torch.full_like(added, math.nan), added)


ORDERS: dict[Any, Callable[..., Any]] = {
    aten.sort.default: sort,
    aten.sort.stable: stable_sort,
    aten.argsort.default: argsort,
    aten.argsort.stable: stable_argsort,
    aten.msort.default: msort,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median_dim,
    aten.median.default: median,
    aten.nanmedian.dim: nanmedian_dim,
    aten.nanmedian.default: nanmedian,
    aten.mode.default: mode,
    aten.isin.Tensor_Tensor: isin,
    aten.bucketize.Tensor: bucketize,
    aten.searchsorted.Tensor: searchsorted,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.logcumsumexp.default: logcumsumexp,
}
"""Operator → its decomposition."""
