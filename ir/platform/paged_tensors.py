"""Large tensors that wait in a file, from where they come as they are read and may leave again."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch

LARGE = 1 << 22
"""Bytes from which on a tensor is worth a file."""
_MAY_GO = os.name == "posix"
"""Whether a file that is mapped may lose its name."""


def below_each_other(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows that are in several tensors as one tensor; a large one is mapped from a temporary file.

    The file has no name and goes with the tensor; what is written into the tensor stays in memory.
    Where the folder of temporary files (`TMPDIR`) has no room, rows are in memory too.

    Args:
        parts: dense, of one type, each `[rows, …]`.
    """
    first = parts[0]
    rows = sum(len(part) for part in parts)
    size = rows * first[:1].numel()
    if _MAY_GO and size * first.itemsize >= LARGE:
        try:
            return _mapped(parts, first.dtype, size).view(rows, *first.shape[1:])
        except OSError:
            pass
    return torch.cat(list(parts))


def give_back() -> None:
    """Let the system have what is free in between, where the C library offers it (glibc).

    Temporaries of a matrix leave holes that small objects make too short for the next ones.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _mapped(parts: Sequence[torch.Tensor], dtype: torch.dtype, size: int) -> torch.Tensor:
    """So many elements, one after the other.

    Raises:
        OSError: there is no room.
    """
    with tempfile.NamedTemporaryFile(prefix="stepwell.") as file:
        for part in parts:
            flat: Any = part.contiguous().view(-1).view(torch.uint8).numpy()
            file.write(memoryview(flat))
        file.flush()
        return torch.from_file(file.name, shared=False, size=size, dtype=dtype)
