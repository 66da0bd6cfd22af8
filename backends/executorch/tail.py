"""The end of a file, written in place before it is known what stands in front of it.

Most of a `.pte` is weights, and its header names each by its hash. So each is put once where it
stays, in the bytes that become the file. When the rest is known, the end is moved up to it, within
memory that is in use already: to take new memory costs more than to hash it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from stepwell.backends.executorch.container import Data
from stepwell.backends.executorch.segments import SEGMENT_ALIGNMENT

_HEADER = 1 << 20


def padded(size: int) -> int:
    """What a segment of so many bytes takes of a tail."""
    return size + -size % SEGMENT_ALIGNMENT


class Tail:
    """The last segments of a file, in the order of their names.

    Args:
        capacity: the sum of `padded` sizes. With less, or more than `front` bytes and a header in
            front, the file is right and is copied once more.
        front: so many bytes are expected in front, besides a header.
    """

    def __init__(self, capacity: int, front: int = 0) -> None:
        self._begin = self._end = padded(front + _HEADER)
        self._file = io.BytesIO(bytes(self._begin + capacity))
        self._bytes = self._file.getbuffer()
        self._segments: dict[str, memoryview] = {}
        self._open = self._bytes[:0]
        self._is_full = False

    def place(self, size: int) -> memoryview:
        """Where the next segment goes; to be filled and then kept, or not."""
        begin = padded(self._end)
        self._is_full |= begin + size > len(self._bytes)
        if self._is_full:
            self._open = memoryview(bytearray(size))
        else:
            self._bytes[self._end : begin] = bytes(begin - self._end)  # What was not kept is there.
            self._open = self._bytes[begin : begin + size]
        return self._open

    def keep(self, name: str, data: Data) -> memoryview:
        """The segment of that name: what it has, the place that was filled, or a copy there."""
        known = self._segments.get(name)
        if known is None:
            if data is not self._open:
                self.place(len(data))[:] = data
            known = self._segments[name] = self._open
            self._end = padded(self._end) + len(data)
        return known

    def file(self, parts: Sequence[Data]) -> bytes:
        """All parts of a file, the last of which are the segments; they are gone then."""
        if self._is_full:
            return b"".join(parts)
        first = next(iter(self._segments.values()), None)
        ahead = next((i for i, part in enumerate(parts) if part is first), len(parts))
        front = b"".join(parts[:ahead])
        size = self._end - self._begin
        assert sum(map(len, parts[ahead:])) == size, "the last parts are not the segments"
        if len(front) > self._begin:
            return b"".join((front, self._bytes[self._begin : self._end]))
        self._bytes[len(front) : len(front) + size] = self._bytes[self._begin : self._end]
        self._bytes[: len(front)] = front
        for view in (*self._segments.values(), self._open, self._bytes):
            view.release()
        self._file.truncate(len(front) + size)
        return self._file.getvalue()
