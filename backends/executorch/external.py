"""`.ptd` files: tensors and delegates' data by key, outside of a `.pte`. The files are not trusted.

Source: `extension/flat_tensor/serialize` of ExecuTorch 1.5: `flat_tensor.fbs`, and the header after
its file identifier in `flat_tensor_header.h`.
"""

import functools
import struct
from collections.abc import Mapping, Sequence

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import Container, Data, External, NamedData, TensorValue
from stepwell.backends.executorch.reading.read import shipped
from stepwell.backends.executorch.segments import SEGMENT_ALIGNMENT, Segments, file_parts
from stepwell.backends.executorch.writing.memory import ALIGNMENT
from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.ir.diagnostics import ParseFailure

_WHAT = "the .ptd file"
_MAGIC = b"FH01"
_HEADER = struct.Struct("<4sIQQQQ")
_HEADER_AT = 8


def external_to_bytes(container: Container) -> bytes | None:
    """Return the `.ptd` file with a container's external data, or None if it has none."""
    return external_files(container).get(None)


def external_files(container: Container) -> dict[str | None, bytes]:
    """Return the `.ptd` files with a container's external data, by file name (None: unnamed)."""
    check(container)
    files: dict[str | None, dict[str, NamedData]] = {}
    for key, value in container.external_data.items():
        files.setdefault(value.file, {})[key] = value
    return {file: _external_file(container, held) for file, held in files.items()}


def _external_file(container: Container, held: Mapping[str, NamedData]) -> bytes:
    layouts = {
        value.storage.key: {
            "scalar_type": int(value.scalar_type),
            "sizes": value.sizes,
            "dim_order": value.dim_order,
        }
        for method in container.methods
        for value in method.values
        if isinstance(value, TensorValue) and isinstance(value.storage, External)
    }
    return _data_file(held, layouts)


def joined_externals(files: Sequence[bytes]) -> bytes:
    """Merge several `.ptd` files into one; for a repeated name, the first file's data is used.

    Raises:
        ParseFailure: the bytes are not a `.ptd`, or are damaged.
    """
    entries = {key: held for file in reversed(files) for key, held in read_entries(file).items()}
    held = {key: NamedData(blob, ALIGNMENT) for key, (blob, _) in entries.items()}
    return _data_file(held, {key: layout for key, (_, layout) in entries.items() if layout})


def _data_file(held: Mapping[str, NamedData], layouts: Mapping[str, Record]) -> bytes:
    segments = Segments()
    entries: list[Record] = [
        {"key": key, "segment_index": index, "tensor_layout": layouts.get(key)}
        for key, index in segments.add_named(held).items()
    ]
    record = {"version": 0, "segments": segments.table, "named_data": entries}
    return b"".join(_with_header(write_root(flat_tensor_schema(), record), segments))


def _with_header(flatbuffer: bytes, segments: Segments) -> list[Data]:
    """Return the parts of a `.ptd` file: the FlatBuffer with its header, then the segments."""
    padded = _HEADER.size + -_HEADER.size % 16
    size = padded + len(flatbuffer)
    base = size + -size % SEGMENT_ALIGNMENT
    packed = _HEADER.pack(_MAGIC, _HEADER.size, padded, len(flatbuffer), base, segments.size)
    return file_parts(flatbuffer, packed.ljust(padded, b"\0"), base, segments)


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
    """Return all named data of a `.ptd` file as views of `data`; tensors with their layout."""
    view = memoryview(data)
    if len(view) < _HEADER_AT + _HEADER.size or bytes(view[8:12]) != _MAGIC:
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
