"""Scales and zero points by the thousand, kept in one to eight bytes each instead of thirty.

A layer of four-bit weights in groups has a scale for every 32 of them; of a billion weights, tuples
of scales would take a gigabyte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast, overload

from stepwell.ir.on_demand import numpy as np
from stepwell.ir.on_demand import torch

N = TypeVar("N", float, int)

_MANY = 64
_TYPES = {float: ("float64", "float32"), int: ("int64", "int8")}
"""That which holds every number, and the short one that holds most."""


def compact(values: Sequence[N], kind: type[N]) -> Sequence[N]:
    """The same numbers: a tuple, or if they are many and fit into 64 bits, something shorter."""
    if isinstance(values, Numbers):
        return values
    if len(values) > _MANY:
        with suppress(OverflowError):
            return Numbers(values, kind)
    return tuple(values)


def from_tensor(tensor: torch.Tensor, kind: type[N]) -> Sequence[N]:
    """The elements of a tensor, as `compact` gives numbers, without one object for each.

    Floats that are to be ints lose their fraction.
    """
    flat = tensor.detach().reshape(-1)
    if kind is float:
        flat = flat.double() if flat.dtype is torch.float64 else flat.float()
    elif flat.is_floating_point():
        flat = flat.long()
    if flat.numel() <= _MANY:
        return tuple(map(kind, flat.tolist()))
    return Numbers(flat.numpy(), kind)


def all_positive(values: Sequence[float]) -> bool:
    """Whether every number is more than 0 and finite."""
    if isinstance(values, Numbers):
        return bool(((values.held > 0) & (values.held < math.inf)).all())
    return all(0 < value < math.inf for value in values)


def extent(values: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest of some integers."""
    if isinstance(values, Numbers):
        return values.held.min().item(), values.held.max().item()
    return min(values), max(values)


class Numbers(Sequence[N]):
    """Immutable numbers of one kind.

    Args:
        values: the numbers; an array may be of any width.
        kind: float or int; floats that single precision holds take four bytes, ints of eight bits
            one, all others eight.

    Raises:
        OverflowError: an int does not fit into 64 bits.
    """

    __slots__ = ("held",)

    def __init__(self, values: Sequence[N] | Any, kind: type[N]) -> None:
        wide, narrow = _TYPES[kind]
        is_short = isinstance(values, np.ndarray) and values.dtype == narrow
        held: Any = np.array(values, dtype=narrow if is_short else wide)
        with np.errstate(over="ignore", invalid="ignore"):
            short = held.astype(narrow, copy=False)
        self.held: Any = short if is_short or (short == held).all() else held
        self.held.flags.writeable = False

    def __len__(self) -> int:
        return len(self.held)

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[N]: ...
    def __getitem__(self, index: int | slice) -> N | Sequence[N]:
        found = self.held[index].tolist()
        return tuple(found) if isinstance(index, slice) else cast(N, found)

    def __iter__(self) -> Iterator[N]:
        return iter(self.held.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and bool(np.array_equal(self.held, other.held))

    def __hash__(self) -> int:
        return hash(self.held.tobytes())

    def __repr__(self) -> str:
        return f"<{len(self)} numbers from {self.held.min()} to {self.held.max()}>"
