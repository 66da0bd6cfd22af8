"""The end of a file, written in place before it is known what stands in front of it.

Most of a `.pte` is weights, and its header names each by its content. So each is put once where it
stays, in the bytes that become the file. When the rest is known, the end is moved up to it, within
memory that is in use already: to take new memory costs more than to hash it. Of a large file the
end stays where it is, behind up to a megabyte of nothing: to move it would be a second copy. Where
the bytes are a file's own, the program holds none of them: the system writes them out as it needs
memory.
"""

from __future__ import annotations

import io
import math
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from stepwell.backends.executorch.container import Data
from stepwell.backends.executorch.content_equality import are_equal
from stepwell.backends.executorch.segments import SEGMENT_ALIGNMENT

_HEADER = 1 << 20
_LARGE = 1 << 27
"""Bytes of an end that is not moved: what stays free in front of it is less than a hundredth."""


_MOVED = 1 << 20
"""Bytes of a file that are moved at a time."""

_STRETCH = 1 << 25
"""Bytes of a file that the system is asked to write out at a time."""

_BEHIND = 4 * _STRETCH
"""So far behind what is written the system is asked to forget it."""

Progress = Callable[[str, int, int], None]
"""Told what is written, how many bytes of weights stand already, and how many there will be."""


def padded(size: int) -> int:
    """What a segment of so many bytes takes of a tail."""
    return size + -size % SEGMENT_ALIGNMENT


class FileBuffer(Protocol):
    """Bytes, of which the last become the end of a file."""

    def lay(self, size: int) -> memoryview:
        """So many bytes, to be read, and written if they can be; called once."""
        ...

    def put(self, begin: int, data: Data) -> None:
        """Write some of the bytes, from `begin` on."""
        ...

    def close_up(self, front: Sequence[Data], begin: int, end: int) -> bytes:
        """Bring the bytes from `begin` to `end` up to a front; nobody holds a view of them.

        Returns:
            The whole file; nothing if that is what these bytes are.
        """
        ...


class InMemory:
    """Bytes of this process."""

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
    """Bytes of a file, written by the system's calls and read where they are mapped.

    To write to mapped pages instead takes once to four times as long as to copy the file, by what
    memory the machine has at hand: each page is found and cleared before it is written. A file of
    more than a quarter of the machine's memory is written out as it grows and not kept there: it
    would drive out the checkpoint that is still to be read, and take three times as long.

    Args:
        path: a new file.

    Methods raise OSError where the disk has no room.
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
        while len(rest):  # The system takes so much at a time.
            rest = rest[self._file.write(rest) :]
        if self._is_passing:
            self._pass_on(begin + len(data))

    def _pass_on(self, end: int) -> None:
        """Have the system write out what was put last, and forget what it has written by now.

        It forgets what is on the disk alone, so each stretch is named twice, some way apart.
        """
        begin, self._passed = self._passed, max(self._passed, end - end % _STRETCH)
        for place in (begin, max(begin - _BEHIND, 0)) if begin < self._passed else ():
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
        """Bring bytes to another place, of which some may be theirs now."""
        begins = range(0, size if source != target else 0, _MOVED)
        for begin in begins if target < source else reversed(begins):
            self._file.seek(source + begin)
            self.put(target + begin, self._file.read(min(_MOVED, size - begin)))


def _memory() -> float:
    """Bytes of this machine's memory; no end of it where the system takes no advice on files."""
    if not hasattr(os, "posix_fadvise"):
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _size(parts: Sequence[Data]) -> int:
    return sum(map(len, parts))


def _placed(parts: Sequence[Data]) -> Iterator[tuple[slice, Data]]:
    """Parts one behind the other, each with its place."""
    begin = 0
    for part in parts:
        yield slice(begin, begin + len(part)), part
        begin += len(part)


class Tail:
    """The last segments of a file, in the order of their names.

    Args:
        capacity: the sum of `padded` sizes. With less, or more than `front` bytes and a header in
            front, the file is right and is copied once more.
        front: so many bytes are expected in front, besides a header.
        ground: where the bytes are.
        progress: told of each segment before it is made.
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
        self._open = self._bytes[:0]
        self._is_full = False

    @property
    def fixed(self) -> int | None:
        """Where in the file the segments of a large tail begin; None where they are moved."""
        return self._begin if self._end - self._begin >= _LARGE and not self._is_full else None

    def place(self, size: int, what: str = "") -> memoryview:
        """Where the next segment goes; to be filled, or by `put`, and then kept, or not.

        Args:
            size: bytes.
            what: they are, for those who watch.
        """
        if self._progress is not None and what:
            self._progress(what, self._end - self._begin, self._capacity)
        begin = padded(self._end)
        self._is_full |= begin + size > len(self._bytes)
        if self._is_full:
            self._open = memoryview(bytearray(size))
        else:
            self._ground.put(self._end, bytes(begin - self._end))  # What was not kept is there.
            self._open = self._bytes[begin : begin + size]
        return self._open

    def put(self, begin: int, data: Data) -> None:
        """Write some of the place that was asked for last, which may be one to read only."""
        if self._is_full:
            self._open[begin : begin + len(data)] = data
        else:
            self._ground.put(padded(self._end) + begin, data)

    def name_for(self, name: str, data: Data) -> str:
        """The name if nothing has it, or the same bytes have; else one like it."""
        text, count = name, 0
        while (known := self._segments.get(text)) is not None and not are_equal(known, data):
            count += 1
            text = f"{name}.{count}"
        return text

    def keep(self, name: str, data: Data) -> memoryview:
        """The segment of that name: what it has, the place that was filled, or a copy there."""
        known = self._segments.get(name)
        if known is None:
            if data is not self._open:
                self.place(len(data))
                self.put(0, data)
            known = self._segments[name] = self._open
            self._end = padded(self._end) + len(data)
        return known

    def file(self, parts: Sequence[Data]) -> bytes:
        """All parts of a file, the last of which are the segments; they are gone then.

        Returns:
            The file, or nothing where the tail's ground is a file, which is whole then.
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
