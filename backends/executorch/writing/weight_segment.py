"""The end of a file, written in place before the size of the preceding data is known.

Most of a `.pte` is weights, and its header names each by its content. Each weight is therefore
written once to its final position in the bytes that become the file. When the size of the rest is
known, the end is moved next to the rest, within memory that is already in use, because touching new
memory costs more than hashing it. The end of a large file is not moved but follows up to a megabyte
of padding, because moving it would be a second copy. If the bytes are a file, the process holds
none of them: the operating system writes them out when it needs memory.
"""

import io
import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from stepwell.backends.executorch.container import Data, are_equal
from stepwell.backends.executorch.segments import SEGMENT_ALIGNMENT

_HEADER = 1 << 20
_LARGE = 1 << 27
"""The size in bytes from which an end is not moved: the padding is less than a hundredth of it."""


_MOVED = 1 << 20
"""The number of bytes of a file that are moved at a time."""

_STRETCH = 1 << 25
"""The number of bytes of a file for which write-out is requested at a time."""

_RELEASE_LAG = 4 * _STRETCH
"""Pages of a file are released when this number of bytes after them has been written."""

Progress = Callable[[str, int, int], None]
"""Called with the current weight, the bytes of weights written, and the total bytes of weights."""


def padded(size: int) -> int:
    """Return the size of a segment in the tail, including padding."""
    return size + -size % SEGMENT_ALIGNMENT


class FileBuffer(Protocol):
    """Bytes whose last part becomes the end of a file."""

    def lay(self, size: int) -> memoryview:
        """Allocate bytes, readable and possibly writable; called once."""
        ...

    def put(self, begin: int, data: Data) -> None:
        """Write some of the bytes, from `begin` on."""
        ...

    def close_up(self, front: Sequence[Data], begin: int, end: int) -> bytes:
        """Move the bytes from `begin` to `end` next to the preceding parts; no view may exist.

        Returns:
            The whole file; None if the bytes are in a file.
        """
        ...


class InMemory:
    """Bytes in the memory of this process."""

    def lay(self, size: int) -> memoryview:
        self._file = io.BytesIO(bytes(size))
        return self._file.getbuffer()

    def put(self, begin: int, data: Data) -> None:
        with self._file.getbuffer() as held:
            held[begin : begin + len(data)] = data

    def close_up(self, front: Sequence[Data], begin: int, end: int) -> bytes:
        size = _size(front)
        with self._file.getbuffer() as held:
            if size > begin:
                return b"".join((*front, held[begin:end]))
            if size != begin:
                held[size : size + end - begin] = held[begin:end]
            for place, part in _placed(front):
                held[place] = part
        self._file.truncate(size + end - begin)
        return self._file.getvalue()


class OnFile:
    """Bytes of a file, written by system calls and read through a mapping.

    Writing to mapped pages instead takes one to four times as long as copying the file, depending
    on available memory: each page is allocated and cleared before it is written. A file of
    more than a quarter of the machine's memory is written out as it grows, and its pages are
    released. Otherwise it would evict the checkpoint that is still to be read, and take three
    times as long.

    Args:
        path: a new file.

    Methods raise OSError if the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def lay(self, size: int) -> memoryview:
        self._file = self._path.open("xb+", buffering=0)
        self._file.truncate(max(size, 1))
        self._map = mmap.mmap(self._file.fileno(), max(size, 1), access=mmap.ACCESS_READ)
        self._is_passing = size > _memory() // 4
        self._passed = 0
        return memoryview(self._map)[:size]

    def put(self, begin: int, data: Data) -> None:
        self._file.seek(begin)
        rest = memoryview(data).cast("B")
        while len(rest):  # A system call writes a limited number of bytes.
            rest = rest[self._file.write(rest) :]
        if self._is_passing:
            self._pass_on(begin + len(data))

    def _pass_on(self, end: int) -> None:
        """Request write-out of the last bytes, and release pages that are written by now.

        Only clean pages can be released, so each range is named twice, some distance apart.
        """
        begin, self._passed = self._passed, max(self._passed, end - end % _STRETCH)
        for place in (begin, max(begin - _RELEASE_LAG, 0)) if begin < self._passed else ():
            os.posix_fadvise(
                self._file.fileno(), place, self._passed - begin, os.POSIX_FADV_DONTNEED
            )

    def close_up(self, front: Sequence[Data], begin: int, end: int) -> bytes:
        size = _size(front)
        self._map.close()
        with self._file:
            self._move(begin, size, end - begin)
            for place, part in _placed(front):
                self.put(place.start, part)
            self._file.truncate(size + end - begin)
        return b""

    def _move(self, source: int, target: int, size: int) -> None:
        """Move bytes to another position; the two ranges may overlap."""
        begins = range(0, size if source != target else 0, _MOVED)
        for begin in begins if target < source else reversed(begins):
            self._file.seek(source + begin)
            self.put(target + begin, self._file.read(min(_MOVED, size - begin)))


def _memory() -> float:
    """Return the machine's memory in bytes; infinite if the system has no `posix_fadvise`."""
    if not hasattr(os, "posix_fadvise"):
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _size(parts: Sequence[Data]) -> int:
    return sum(map(len, parts))


def _placed(parts: Sequence[Data]) -> Iterator[tuple[slice, Data]]:
    """Yield consecutive parts of a file, each with its range of bytes."""
    begin = 0
    for part in parts:
        yield slice(begin, begin + len(part)), part
        begin += len(part)


class Tail:
    """The last segments of a file, in the order of their names.

    Args:
        capacity: the sum of `padded` sizes. If it is too small, or if the preceding part is larger
            than `front` bytes and a header, the file is correct, but is copied once more.
        front: the expected number of bytes before the segments, besides a header.
        ground: the storage of the bytes.
        progress: called with each segment before it is computed.
    """

    def __init__(
        self,
        capacity: int,
        front: int = 0,
        ground: FileBuffer | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._begin = self._end = padded(front + _HEADER)
        self._ground = ground or InMemory()
        self._capacity, self._progress = capacity, progress
        self._bytes = self._ground.lay(self._begin + capacity)
        self._segments: dict[str, memoryview] = {}
        self.names: dict[str, str] = {}
        """The segment of each weight that was written, by the weight's key and encoding."""
        self._open = self._bytes[:0]
        self._is_full = False

    @property
    def segments(self) -> Mapping[str, Data]:
        """Return the segments by name."""
        return self._segments

    @property
    def fixed(self) -> int | None:
        """Return the position of a large tail's segments in the file; None if they are moved."""
        return self._begin if self._end - self._begin >= _LARGE and not self._is_full else None

    def place(self, size: int, what: str = "") -> memoryview:
        """Allocate the next segment, to be filled directly or by `put`, and then kept or dropped.

        Args:
            size: the size in bytes.
            what: a description for progress reports.
        """
        if self._progress is not None and what:
            self._progress(what, self._end - self._begin, self._capacity)
        begin = padded(self._end)
        self._is_full |= begin + size > len(self._bytes)
        if self._is_full:
            self._open = memoryview(bytearray(size))
        else:
            self._ground.put(self._end, bytes(begin - self._end))  # Clears dropped bytes.
            self._open = self._bytes[begin : begin + size]
        return self._open

    def put(self, begin: int, data: Data) -> None:
        """Write a part of the segment that was allocated last, which may be read-only."""
        if self._is_full:
            self._open[begin : begin + len(data)] = data
        else:
            self._ground.put(padded(self._end) + begin, data)

    def name_for(self, name: str, data: Data) -> str:
        """Return the name if it is unused or used for equal bytes; otherwise a similar name."""
        text, count = name, 0
        while (known := self._segments.get(text)) is not None and not are_equal(known, data):
            count += 1
            text = f"{name}.{count}"
        return text

    def keep(self, name: str, data: Data) -> memoryview:
        """Keep the last allocated segment under a name, unless the name has a segment already.

        Returns the segment of that name.
        """
        known = self._segments.get(name)
        if known is None:
            if data is not self._open:
                self.place(len(data))
                self.put(0, data)
            known = self._segments[name] = self._open
            self._end = padded(self._end) + len(data)
        return known

    def file(self, parts: Sequence[Data]) -> bytes:
        """Return all parts of a file, the last of which are the segments; they are consumed.

        Returns:
            The file, or nothing if the tail's storage is a file, which is then complete.
        """
        if self._is_full:
            front: Sequence[Data] = [b"".join(parts)]
            self._end = self._begin
        else:
            first = next(iter(self._segments.values()), None)
            ahead = next((i for i, part in enumerate(parts) if part is first), len(parts))
            front = parts[:ahead]
            rest = _size(parts[ahead:])
            assert rest == self._end - self._begin, "the last parts are not the segments"
        for view in (*self._segments.values(), self._open, self._bytes):
            view.release()
        return self._ground.close_up(front, self._begin, self._end)
