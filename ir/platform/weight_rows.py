"""Write rows of weights as bytes into a file's memory."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.ir.compat.torch.lazy_imports import torch

SAMPLED = 1 << 20
"""The size in bytes above which a tensor's content hash is computed from samples."""


def writer(place: memoryview) -> Callable[[int, memoryview], None]:
    """Return a function that writes bytes at an offset of a buffer."""

    def put(begin: int, data: memoryview) -> None:
        place[begin : begin + len(data)] = data

    return put


def put_rows(
    tensor: torch.Tensor, place: memoryview, pack: Callable[[torch.Tensor], torch.Tensor] | None
) -> None:
    """Write rows of a tensor to the buffer `place`, encoded by `pack` if there is one."""
    dense = torch.frombuffer(place, dtype=torch.uint8)
    if pack is None:
        dense.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    else:
        dense.copy_(pack(tensor.contiguous()).reshape(-1).view(torch.uint8))


def samples(held: memoryview, begin: int) -> bytes:
    """Return 16 bytes of each 16 KiB of `held`, a tensor's bytes from `begin` on, for a hash."""
    step = SAMPLED // 64
    return b"".join(held[at : at + 16] for at in range(-begin % step, len(held), step))
