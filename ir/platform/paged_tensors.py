"""Large tensors that are mapped from temporary files, so that the system pages them in and out."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch

LARGE = 1 << 22
"""The size in bytes from which on a tensor is mapped from a file."""
_MAY_GO = os.name == "posix"
"""Whether a mapped file can be unlinked."""


def below_each_other(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate rows of several tensors; a large result is mapped from a temporary file.

    The file is unlinked and is freed with the tensor; writes to the tensor stay in memory. If the
    folder of temporary files (`TMPDIR`) is full, the rows are kept in memory.

    Args:
        parts: dense tensors of one type, each `[rows, …]`.
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
    """Return free memory to the system, if the C library supports it (glibc).

    Small objects fragment the memory that is freed after a large matrix, so that later matrices do
    not fit.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _mapped(parts: Sequence[torch.Tensor], dtype: torch.dtype, size: int) -> torch.Tensor:
    """Map a tensor of `size` elements, the concatenation of the parts.

    Raises:
        OSError: the disk is full.
    """
    with tempfile.NamedTemporaryFile(prefix="stepwell.") as file:
        for part in parts:
            flat: Any = part.contiguous().view(-1).view(torch.uint8).numpy()
            file.write(memoryview(flat))
        file.flush()
        return torch.from_file(file.name, shared=False, size=size, dtype=dtype)
