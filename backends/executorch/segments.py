"""The outer format of `.pte` and `.ptd` files: a FlatBuffer with a header in it, then data.

    root offset, file identifier, header, rest of the FlatBuffer, padding, segment, padding, …

Segments begin at multiples of 128 bytes (or more, if they request more), counted from the start
of the first one.

Source: `schema/extended_header.h` of ExecuTorch 1.5.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwell.backends.executorch.container import Data, NamedData
from stepwell.ir.compat.torch.lazy_imports import numpy as np

SEGMENT_ALIGNMENT = 128


@dataclass
class Segments:
    """The data after the FlatBuffer, in segments."""

    pieces: list[Data] = field(default_factory=list[Data])
    size: int = 0
    table: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    """One `DataSegment` record for each segment."""

    def add(self, data: Data, alignment: int = 1) -> int:
        """Append a segment; return its index."""
        return self.add_pieces([data], alignment)

    def add_pieces(self, pieces: list[Data], alignment: int = 1) -> int:
        """Append one segment made of several pieces; return its index."""
        padding = -self.size % math.lcm(SEGMENT_ALIGNMENT, alignment)
        size = sum(len(piece) for piece in pieces)
        self.table.append({"offset": self.size + padding, "size": size})
        self.pieces.extend([bytes(padding), *pieces])
        self.size += padding + size
        return len(self.table) - 1

    def add_named(self, named: Mapping[str, NamedData]) -> dict[str, int]:
        """Append named data, each distinct memory range once; return keys to segment indices."""
        indices: dict[str, int] = {}
        segment_of: dict[tuple[int, int], int] = {}
        for key, value in named.items():
            place = memory_range(value.data)
            index = segment_of.get(place)
            if index is None:
                index = segment_of[place] = self.add(value.data, value.alignment)
            indices[key] = index
        return indices


def memory_range(data: Data) -> tuple[int, int]:
    """Return the memory range of bytes: (address, size)."""
    return np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0, len(data)


def with_program_header(
    flatbuffer: bytes, segments: Segments, fixed: tuple[int, int] | None = None
) -> list[Data]:
    """Return the parts of a `.pte` file: the FlatBuffer with its extended header, then the
    segments.

    Args:
        flatbuffer: the program.
        segments: the data after it.
        fixed: (index, position) of the segment that is already at its position in the file. If the
            FlatBuffer ends before it, the gap is filled with padding.
    """
    header = struct.Struct("<4sIQQQ")
    size = header.size + len(flatbuffer)
    base = size + -size % SEGMENT_ALIGNMENT
    if fixed is not None and fixed[0] < len(segments.table):
        wanted = fixed[1] - segments.table[fixed[0]]["offset"]
        base = wanted if wanted >= base and wanted % SEGMENT_ALIGNMENT == 0 else base
    packed = header.pack(b"eh00", header.size, size, base, segments.size)
    return file_parts(flatbuffer, packed, base, segments)


def file_parts(flatbuffer: bytes, header: bytes, base: int, segments: Segments) -> list[Data]:
    """Return the parts of a file: the FlatBuffer with a header after its identifier, then
    segments.
    """
    (root,) = struct.unpack_from("<I", flatbuffer)
    head = struct.pack("<I", root + len(header)) + flatbuffer[4:8] + header
    padding = bytes(base - len(header) - len(flatbuffer))
    return [head, memoryview(flatbuffer)[8:], padding, *segments.pieces]
