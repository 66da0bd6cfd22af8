"""The payload's format in ExecuTorch's own schema text, and the header before the payload.

Source: `schema.fbs` and `XNNHeader` in `executorch/backends/xnnpack/serialization`.
"""

from functools import cache

from stepwell.backends.executorch.payload_header import HEADER
from stepwell.backends.executorch.payload_header import split_header as split_payload
from stepwell.backends.executorch.reading.read import shipped
from stepwell.backends.flatbuffer import FlatbufferSchema, parse_schema

MAGIC = b"XH00"
ALIGNMENT = 16
NO_VALUE = 2**32 - 1
"""The id of an absent value, and the external id of an internal one."""
NAMED = 2**64 - 1
"""The offset of a constant that is found by name."""


@cache
def schema() -> FlatbufferSchema:
    """Parse the schema that the installed ExecuTorch ships."""
    folder = shipped("backends", "xnnpack", "serialization")
    return parse_schema((folder / "schema.fbs").read_text())


@cache
def datatypes() -> dict[str, int]:
    """Return the schema's numbers of XNNPACK's datatypes by name: `fp32`, `qcint8`, …"""
    values = schema().enums["XNNDatatype"][1]
    return {name.removeprefix("xnn_datatype_"): number for name, number in values.items()}


def with_header(graph: bytes) -> bytes:
    """Return a payload without inline constants: header and graph, at multiples of 16 bytes."""
    start = _padded(HEADER.size)
    end = start + _padded(len(graph))
    header = HEADER.pack(b"\0" * 4, MAGIC, HEADER.size, start, len(graph), end, 0)
    return header.ljust(start, b"\0") + graph.ljust(end - start, b"\0")


def split_header(payload: memoryview) -> tuple[memoryview, memoryview]:
    """Return the graph and the inline constants of a payload; both may be views of it.

    Raises:
        ParseFailure: the payload is too short or its header points outside it.

    """
    if bytes(payload[4:8]) != MAGIC:
        return payload, payload[:0]  # An old payload consists of the graph only.
    return split_payload(payload, "XNNPACK payload")


def _padded(size: int) -> int:
    return (size + ALIGNMENT - 1) & -ALIGNMENT
