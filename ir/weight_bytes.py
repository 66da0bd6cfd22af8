"""The elements of a weight as bytes: dense, in row-major order; sizes and hashes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import AnyTensor, dims, element


def dense_size(type_: AnyTensor) -> int:
    """Return the number of bytes of a weight of this type."""
    sizes = [dim for dim in dims(type_) if isinstance(dim, int)]
    return math.prod(sizes) * torch_dtype(element(type_)).itemsize


def dense_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a tensor in row-major order, little-endian as in memory."""
    return bytes(dense_view(tensor))


def dense_view(tensor: torch.Tensor) -> memoryview:
    """Return `dense_bytes` without a copy, if the elements are in this order already."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # A tensor of one element may have any stride.
    held: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(held)


def content_digest(tensor: torch.Tensor) -> str:
    """Return the sha256 of a tensor's dtype, shape and elements."""
    digest = begin_digest(tensor.dtype, tensor.shape)
    digest.update(dense_view(tensor))
    return digest.hexdigest()


def begin_digest(dtype: torch.dtype, shape: Sequence[int]) -> Any:
    """Start the hash of a tensor with its dtype and shape; the caller adds its bytes."""
    return hashlib.sha256(f"{dtype}{list(shape)}".encode())
