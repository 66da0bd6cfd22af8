"""Read a `.ptd` file: tensors and delegates' data by key; the file is untrusted.

Source: `extension/flat_tensor/serialize/flat_tensor.fbs` of ExecuTorch 1.5, and the header
after its file identifier.
"""

from __future__ import annotations

import functools
import struct

from stepwell.backends.executorch.reading.read import shipped
from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.ir.diagnostics import ParseFailure

_WHAT = "the .ptd file"
_HEADER = struct.Struct("<4sIQQQQ")
_HEADER_AT = 8


@functools.cache
def flat_tensor_schema() -> FlatbufferSchema:
    """Parse the schema that the installed ExecuTorch ships."""
    folder = shipped("extension", "flat_tensor", "serialize")
    return parse_schema(
        (folder / "flat_tensor.fbs").read_text(), lambda name: (folder / name).read_text()
    )


def read_external(data: bytes | bytearray) -> dict[str, memoryview]:
    """Return all named data of a `.ptd` file, as views of `data`."""
    return {key: blob for key, (blob, _) in read_entries(data).items()}


def read_entries(data: bytes | bytearray) -> dict[str, tuple[memoryview, Record | None]]:
    """Return all named data of a `.ptd` file, as views of `data`; a tensor has its layout, too."""
    view = memoryview(data)
    if len(view) < _HEADER_AT + _HEADER.size or bytes(view[8:12]) != b"FH01":
        raise ParseFailure(f"{_WHAT} has no header")
    _, _, start, size, segment_base, _ = _HEADER.unpack_from(view, _HEADER_AT)
    if start + size > len(view) or segment_base > len(view):
        raise ParseFailure(f"{_WHAT} is shorter than its header says", help="it may be cut short")
    root = read_root(view[: start + size], flat_tensor_schema(), what=_WHAT)
    segments = root["segments"]
    found: dict[str, tuple[memoryview, Record | None]] = {}
    for entry in root["named_data"]:
        index = entry["segment_index"]
        if entry["key"] is None or not 0 <= index < len(segments):
            raise ParseFailure(f"{_WHAT}: an entry names segment {index} of {len(segments)}")
        begin = segment_base + segments[index]["offset"]
        end = begin + segments[index]["size"]
        if end > len(view):
            raise ParseFailure(f"{_WHAT} has {len(view)} bytes, segment {index} ends at {end}")
        found[entry["key"]] = view[begin:end], entry["tensor_layout"]
    return found
