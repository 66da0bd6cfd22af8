"""How tensors lie in memory: strides, gaps, offsets, elements and storages that are shared."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Form = Callable[[Sequence[int]], Tensor]


def _values(count: int) -> Tensor:
    return torch.arange(1.0, count + 1) % 11 - 5


def _permuted(shape: Sequence[int], order: Sequence[int]) -> Tensor:
    back = [list(order).index(axis) for axis in range(len(shape))]
    return _dense([shape[axis] for axis in order]).permute(back)


def _dense(shape: Sequence[int]) -> Tensor:
    return _values(max(torch.Size(shape).numel(), 1))[: torch.Size(shape).numel()].view(*shape)


def _stepped(shape: Sequence[int]) -> Tensor:
    return _dense([*shape[:-1], 2 * shape[-1] + 1])[..., 1::2]


def _gapped(shape: Sequence[int]) -> Tensor:
    return _dense([2 * shape[0] + 1, *shape[1:]])[1::2]


def _offset(shape: Sequence[int]) -> Tensor:
    count = torch.Size(shape).numel()
    return _values(count + 5)[3 : 3 + count].view(*shape)


def _windows(shape: Sequence[int]) -> Tensor:
    """Rows that overlap by all but one element."""
    return _values(sum(shape) + 1).as_strided(shape, [1] * len(shape), 1)


LAYOUTS: dict[str, Form] = {
    "contiguous": _dense,
    "reversed axes": lambda shape: _permuted(shape, range(len(shape))[::-1]),
    "channels last": lambda shape: _permuted(shape, [0, *range(2, len(shape)), 1][: len(shape)]),
    "every second": _stepped,
    "rows with gaps": _gapped,
    "with an offset": _offset,
    "expanded": lambda shape: _dense([1, *shape[1:]]).expand(*shape),
    "one number": lambda shape: _values(1).expand(*shape),
    "overlapping rows": _windows,
    "reversed and stepped": lambda shape: _stepped([*shape[::-1]]).permute(
        *range(len(shape))[::-1]
    ),
}
SHARED = ("apart", "apart", "apart", "same", "view", "halves")
"""What two inputs share."""


def laid_out(shape: Sequence[int], layout: str, shared: str = "apart") -> Tensor:
    """Integers in a layout; as the first of two halves of one tensor where that is shared."""
    if shared == "halves":
        return LAYOUTS[layout]([2 * shape[0], *shape[1:]])[: shape[0]]
    return LAYOUTS[layout](shape)


def beside(first: Tensor, layout: str, shared: str) -> Tensor:
    """A second tensor of the same shape, apart from the first or in its storage."""
    if shared == "same":
        return first
    if shared == "view":
        return first.view_as(first)
    if shared == "halves":
        offset = first.storage_offset() + first.shape[0] * first.stride(0)
        return first.as_strided(first.shape, first.stride(), offset)
    return LAYOUTS[layout](first.shape)
