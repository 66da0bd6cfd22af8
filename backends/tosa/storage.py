"""Convert constant data between the flatbuffer's format and torch tensors.

Element types that PyTorch has are stored as in memory. Others are represented as one code
per element: int4 in int8, int48 in int64, fp6, fp4 and mxint8 codes in uint8. The file packs int4
and fp4 two to a byte (first in the low half), fp6 four to three bytes, int48 in six bytes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute

from stepwell.dialects.tosa.codes import f4e2m1, f6e2m3, f6e3m2, i4, i48, mxint8
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.dtypes import has_torch_dtype, torch_dtype
from stepwell.ir.weight_bytes import dense_bytes

_HELD: dict[Attribute, torch.dtype] = {i4: torch.int8, i48: torch.int64, mxint8: torch.uint8}
_PACKED: dict[Attribute, int] = {f6e2m3: 6, f6e3m2: 6, f4e2m1: 4, i4: 4}


def held_dtype(element: Attribute) -> torch.dtype:
    """Return the torch dtype that represents elements of this type at run time."""
    if element in _PACKED and element not in _HELD:
        return torch.uint8
    return _HELD[element] if element in _HELD else torch_dtype(element)


def is_held_as_codes(element: Attribute) -> bool:
    """Whether PyTorch has no dtype for these elements, so that codes represent them."""
    return element in _HELD or element in _PACKED or not has_torch_dtype(element)


def to_bytes(tensor: torch.Tensor, element: Attribute) -> bytes:
    """Return the data of a constant tensor of an element type."""
    if element == i48:
        wide = np.frombuffer(dense_bytes(tensor), np.uint8).reshape(-1, 8)
        return wide[:, :6].tobytes()
    bits = _PACKED.get(element)
    if bits is None:
        return dense_bytes(tensor)
    codes = np.frombuffer(dense_bytes(tensor), np.uint8)
    return (_pack4 if bits == 4 else _pack6)(codes).tobytes()


def from_bytes(data: bytes, shape: Sequence[int], element: Attribute) -> torch.Tensor:
    """Return a constant tensor from its data, which may be padded; raises `ParseFailure` if too
    short.
    """
    count = math.prod(shape)
    needed = stored_size(count, element)
    if len(data) < needed:
        raise ParseFailure(
            f"a constant of {list(shape)} {element} has {len(data)} bytes, it needs {needed}"
        )
    raw = np.frombuffer(data, np.uint8, needed)
    if element == i48:
        wide = np.zeros((count, 8), np.uint8)
        wide[:, :6] = raw.reshape(-1, 6)
        wide[:, 6:] = (np.int16(-1) * (wide[:, 5:6] >> 7)).astype(np.uint8)
        raw = wide.reshape(-1)
    bits = _PACKED.get(element)
    if bits is not None:
        raw = (_unpack4 if bits == 4 else _unpack6)(raw)[:count]
        if element == i4:
            raw = ((raw.astype(np.int8) ^ 8) - 8).view(np.uint8)
    if count == 0:
        return torch.zeros(tuple(shape), dtype=held_dtype(element))
    tensor = torch.from_numpy(raw.copy()).view(held_dtype(element))
    return tensor.reshape(tuple(shape))


def stored_size(count: int, element: Attribute) -> int:
    """Return the number of bytes of `count` elements in the file."""
    if element == i48:
        return 6 * count
    if element in _PACKED:
        return (count * _PACKED[element] + 7) // 8
    if element == IntegerType(1):
        return count
    return count * held_dtype(element).itemsize


def _pack4(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    codes = np.pad(codes & 0xF, (0, len(codes) % 2)).astype(np.uint8)
    return (codes[0::2] | (codes[1::2] << 4)).astype(np.uint8)


def _unpack4(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack((data & 0xF, data >> 4), axis=-1).reshape(-1).astype(np.uint8)


def _pack6(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    size = (len(codes) * 6 + 7) // 8
    quads = np.pad(codes & 0x3F, (0, -len(codes) % 4)).reshape(-1, 4)
    a, b, c, d = quads.T
    packed = np.stack((a | (b << 6), (b >> 2) | (c << 4), (c >> 4) | (d << 2)), axis=-1)
    return packed.reshape(-1)[:size]


def _unpack6(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    triples = np.pad(data, (0, -len(data) % 3)).reshape(-1, 3)
    a, b, c = triples.T
    codes = (a & 0x3F, (a >> 6) | ((b & 0xF) << 2), (b >> 4) | ((c & 0x3) << 4), c >> 2)
    return np.stack(codes, axis=-1).reshape(-1)
