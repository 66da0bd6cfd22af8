"""Compact storage of many scales and zero points: up to eight bytes each instead of thirty.

A layer of four-bit weights in groups has a scale for every 32 weights; for a billion weights,
tuples of scales would take a gigabyte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast, overload

from stepwell.ir.compat.torch.lazy_imports import numpy as np
from stepwell.ir.compat.torch.lazy_imports import torch

N = TypeVar("N", float, int)

_MANY = 64
_TYPES = {float: ("float64", "float32"), int: ("int64", "int8")}
"""The dtype that can represent every number, and the short one that usually suffices."""
_UPPER = "uint16"
"""The dtype of the upper half of a float32: a bfloat16, which numpy does not have."""


def compact(values: Sequence[N], kind: type[N]) -> Sequence[N]:
    """Return the same numbers: a tuple, or a compact sequence if they are many and fit into 64
    bits.
    """
    if isinstance(values, Numbers):
        return values
    if len(values) > _MANY:
        with suppress(OverflowError):
            return Numbers(values, kind)
    return tuple(values)


def from_tensor(tensor: torch.Tensor, kind: type[N]) -> Sequence[N]:
    """Convert the elements of a tensor like `compact`, without a Python object for each.

    Floats are truncated if the kind is int.
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
    """Whether every number is greater than 0 and finite."""
    if isinstance(values, Numbers):
        return bool(((values.held > 0) & (values.held < math.inf)).all())
    return all(0 < value < math.inf for value in values)


def extent(values: Sequence[int]) -> tuple[int, int]:
    """Return the minimum and the maximum of some integers."""
    if isinstance(values, Numbers):
        return values.held.min().item(), values.held.max().item()
    return min(values), max(values)


class Numbers(Sequence[N]):
    """Immutable numbers of one kind, in as few bytes as possible.

    Args:
        values: the numbers; an array may be of any width.
        kind: float or int. Floats that are exact in bfloat16 take two bytes, in float32 four; ints
            of eight bits take one; all others take eight. If all are equal, one is stored.

    Raises:
        OverflowError: an int does not fit into 64 bits.
    """

    __slots__ = ("_count", "_kept")

    def __init__(self, values: Sequence[N] | Any, kind: type[N]) -> None:
        wide, narrow = _TYPES[kind]
        is_short = isinstance(values, np.ndarray) and values.dtype == narrow
        held: Any = np.asarray(values, dtype=narrow if is_short else wide)
        self._count = len(held)
        if self._count and (_bits(held) == _bits(held)[0]).all():
            held = held[:1]
        with np.errstate(over="ignore", invalid="ignore"):
            short = held.astype(narrow, copy=False)
        held = short if is_short or (short == held).all() else held
        if held.dtype == np.float32 and not (_bits(held) & 0xFFFF).any():
            held = (_bits(held) >> 16).astype(_UPPER)
        self._kept: Any = held if held.base is None and held is not values else held.copy()
        self._kept.flags.writeable = False

    @property
    def held(self) -> Any:
        """Return the numbers as a read-only array."""
        return np.broadcast_to(_widened(self._kept), (self._count,))

    @property
    def kept_bytes(self) -> int:
        """Return the size of the stored numbers in bytes."""
        return self._kept.nbytes

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[N]: ...
    def __getitem__(self, index: int | slice) -> N | Sequence[N]:
        picked = np.broadcast_to(self._kept, (self._count,))[index]
        found = _widened(np.asarray(picked)).tolist()
        return tuple(found) if isinstance(index, slice) else cast(N, found)

    def __iter__(self) -> Iterator[N]:
        return iter(self.held.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Numbers) or len(self) != len(other):
            return False
        mine, theirs = self._kept, other._kept
        return mine.dtype == theirs.dtype and bool(np.array_equal(_bits(mine), _bits(theirs)))

    def __hash__(self) -> int:
        return hash((self._count, self._kept.tobytes()))

    def __repr__(self) -> str:
        return f"<{len(self)} numbers from {self.held.min()} to {self.held.max()}>"


def _bits(held: Any) -> Any:
    """View numbers as unsigned integers, which distinguishes the two zeros."""
    return held.view(f"u{held.itemsize}")


def _widened(kept: Any) -> Any:
    """Convert upper halves of float32 to float32; other arrays unchanged."""
    return (kept.astype(np.uint32) << 16).view(np.float32) if kept.dtype == _UPPER else kept
