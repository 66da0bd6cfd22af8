"""Expression numbers of elements at unknown indices, and of the indices of extrema.

A lookup is a function of the index and of all elements it may select, each at its own index. A
lookup of rows is therefore the same for every operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import operator_and_overload
from stepwell.validation.certificates.field import PRIME, digest
from stepwell.validation.certificates.operators import handles
from stepwell.validation.certificates.shadows import EXACT_STEPS, LOOKUPS, STEPS, Reading, is_shadow


def rows(tensor: Tensor, axis: int) -> Tensor:
    """Return for each line along an axis a number of all its elements, each at its index."""
    shape = [1] * tensor.dim()
    shape[axis] = tensor.shape[axis]
    places = torch.arange(tensor.shape[axis]).reshape(shape)
    return digest("row", tensor, places).sum(axis) % PRIME


def looked_up(reading: Reading, name: str, given: dict[str, Any]) -> Any:
    """Return the result of an operator at unknown indices; NotImplemented for other forms."""
    table = given["weight"] if name == "embedding" else given["self"]
    numbers, of = reading.numbers(table), table.dtype
    if name == "embedding":
        index = reading.numbers(given["indices"])
        return reading.made(digest("lookup", index.unsqueeze(-1), rows(numbers, 0)), of)
    if name == "gather":
        index = reading.numbers(given["index"])
        axis = given["dim"] % numbers.dim()
        line = rows(numbers, axis).unsqueeze(axis)
        for at, size in enumerate(index.shape):
            line = line if at == axis else line.narrow(at, 0, size)
        return reading.made(digest("lookup", index, line), of)
    if name == "index_select":
        axis = given["dim"] % numbers.dim()
        index = reading.numbers(given["index"])
        shape = [1] * numbers.dim()
        shape[axis] = index.numel()
        line = rows(numbers, axis).unsqueeze(axis)
        return reading.made(digest("lookup", index.reshape(shape), line), of)
    return _at_indices(reading, numbers, of, given) if name == "index" else NotImplemented


def _at_indices(reading: Reading, tensor: Tensor, of: torch.dtype, given: dict[str, Any]) -> Any:
    """Return `x[known, …, unknown]`: the last index is unknown, and no axis is skipped."""
    *known, last = given["indices"]
    if not is_shadow(last) or any(k is None or is_shadow(k) for k in known):
        return NotImplemented
    index = reading.numbers(last)
    line = rows(tensor, len(known))
    rest = line.dim() - len(known)
    if known:
        line = line[tuple(k.expand(index.shape) for k in known)]
    return reading.made(digest("lookup", index.reshape(*index.shape, *[1] * rest), line), of)


LOOKUPS.append(looked_up)


def _axis_and_keeps(args: Any, kwargs: Any) -> tuple[Any, bool]:
    given = dict(zip(("dim", "keepdim"), args[1:], strict=False)) | kwargs
    return given.get("dim"), bool(given.get("keepdim", False))


@handles("argmax", "argmin")
def _place_of_greatest(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    axis, keeps = _axis_and_keeps(args, kwargs)
    numbers = reading.numbers(args[0])
    if axis is None or not numbers.dim():
        return NotImplemented
    name = "max" if operator_and_overload(func)[0] == "argmax" else "min"
    found = digest(f"place of {name}", rows(numbers, axis % numbers.dim()))
    return reading.made(found.unsqueeze(axis) if keeps else found, torch.int64)


def _greatest_and_place(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return torch.amax(x, dim, keepdim), torch.argmax(x, dim, keepdim)


def _least_and_place(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)


STEPS.update(max=_greatest_and_place, min=_least_and_place)
EXACT_STEPS.update(("max", "min"))


@handles("copy")
def _copied(reading: Reading, func: Any, args: Any, kwargs: Any) -> Any:
    bare = reading.type_of(func, args, kwargs)
    numbers = reading.numbers(args[1], bare.dtype)
    return reading.made(numbers.expand(bare.shape), bare.dtype)
