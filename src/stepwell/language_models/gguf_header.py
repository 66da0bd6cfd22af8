"""Check the header of a `.gguf` file before packages that trust it read the file.

Each count and length is compared with the bytes that are left, so that reading takes time linear in
the file. Source: the GGUF specification of ggml, versions 2 and 3.
"""

from __future__ import annotations

import struct
from typing import Any

from stepwell.ir.diagnostics import ParseFailure

_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9
_DEPTH = 4
MOST_AXES = 4
MOST_PARTS = 4096
"""Heads, experts and other parts of a layer; of layers there are no more than tensors."""


def check_header(data: memoryview) -> None:
    """Check that a header's counts and lengths fit the file, and that it has a tensor a layer.

    Raises:
        ParseFailure: they do not, or the bytes are no `.gguf`.
    """
    _Header(data).check()


class _Header:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def check(self) -> None:
        magic, version = self.number("I"), self.number("I")
        if magic != 0x46554747 or version not in (2, 3):
            raise ParseFailure("the file is no .gguf of version 2 or 3, little-endian")
        tensors, entries = self.count(16), self.count(16)
        for _ in range(entries):
            name, value = self.text(), self.value(self.number("I"))
            most = tensors if name.endswith(".block_count") else max(tensors, MOST_PARTS)
            if name.endswith("_count") and isinstance(value, int | float) and not value <= most:
                raise ParseFailure(f"the .gguf says {name} = {value}, and has {tensors} tensors")
        for _ in range(tensors):
            self.text()
            axes = self.number("I")
            if axes > MOST_AXES:
                raise ParseFailure(f"a tensor of the .gguf has {axes} axes")
            self.take(8 * axes + 12)

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise ParseFailure(f"the .gguf has {len(self.data)} bytes, too few for its header")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, least: int) -> int:
        """Read a count of items that take at least a given number of bytes each."""
        count: int = self.number("Q")
        if count * least > len(self.data) - self.at:
            raise ParseFailure(f"the .gguf has {len(self.data)} bytes, too few for {count} entries")
        return count

    def text(self) -> str:
        try:
            return bytes(self.take(self.count(1))).decode()
        except UnicodeDecodeError:
            raise ParseFailure("a name in the .gguf is no UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        """Read a number or a string; skip the entries of arrays."""
        if kind == _TEXT:
            return self.text()
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind != _ARRAY or depth == _DEPTH:
            raise ParseFailure(
                f"the .gguf holds a value of type {kind}, or arrays nested too deeply"
            )
        of = self.number("I")
        if of in _SCALARS:
            size = struct.calcsize("<" + _SCALARS[of])
            self.take(self.count(size) * size)
        else:
            for _ in range(self.count(8)):
                self.value(of, depth + 1)
        return None
