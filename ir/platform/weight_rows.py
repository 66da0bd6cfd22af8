"""Rows of weights as bytes, put where a file has them."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.ir.compat.torch.lazy_imports import torch

SAMPLED = 1 << 20
"""Bytes of a tensor above which a name of its content is made of samples."""


def writer(place: memoryview) -> Callable[[int, memoryview], None]:
    """Writes bytes of a place, from so many on."""

    def put(begin: int, data: memoryview) -> None:
        place[begin : begin + len(data)] = data

    return put


def put_rows(
    tensor: torch.Tensor, place: memoryview, pack: Callable[[torch.Tensor], torch.Tensor] | None
) -> None:
    """Put rows of a tensor, or what they are packed into, where they belong."""
    dense = torch.frombuffer(place, dtype=torch.uint8)
    if pack is None:
        dense.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    else:
        dense.copy_(pack(tensor.contiguous()).reshape(-1).view(torch.uint8))


def samples(held: memoryview, begin: int) -> bytes:
    """A thousandth of the bytes, from all over what they are part of, `begin` bytes on."""
    step = SAMPLED // 64
    return b"".join(held[at : at + 16] for at in range(-begin % step, len(held), step))
