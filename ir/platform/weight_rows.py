"""Blocks of rows of weights, and their bytes in a file's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stepwell.ir.compat.torch.lazy_imports import torch

SAMPLED = 1 << 20
"""The size in bytes above which a tensor's content hash is computed from samples."""
_BLOCK = 1 << 16


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


def blocks_of_rows(tensor: torch.Tensor, block: int = _BLOCK) -> Iterator[slice]:
    """Yield slices of the first axis, for recipes whose f64 temporaries should fit in the cache.

    A slice has about 64 Ki elements by default; a meta tensor is one slice.
    """
    if tensor.is_meta:
        return iter([slice(0, tensor.shape[0])])
    return row_blocks(tensor.shape[0], tensor.numel(), block)


def row_blocks(rows: int, elements: int, block: int) -> Iterator[slice]:
    """Yield slices of the rows of a tensor, each with about `block` of its elements."""
    step = 1 + block * rows // max(elements, 1)
    return (slice(begin, min(begin + step, rows)) for begin in range(0, max(rows, 1), step))
