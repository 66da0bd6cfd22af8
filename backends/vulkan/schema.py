"""The payload's format in ExecuTorch's own schema text.

Source: `schema.fbs` and `VulkanDelegateHeader` in `executorch/backends/vulkan/serialization`.
"""

from functools import cache

import torch

from stepwell.backends.executorch.container import Data
from stepwell.backends.executorch.payload_header import split_header
from stepwell.backends.executorch.reading.read import shipped
from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.ir.diagnostics import ParseFailure

BACKEND = "VulkanBackend"
WHAT = "Vulkan payload"
MAGIC = b"VH00"


@cache
def schema() -> FlatbufferSchema:
    """Parse the schema that the installed ExecuTorch ships."""
    folder = shipped("backends", "vulkan", "serialization")
    return parse_schema((folder / "schema.fbs").read_text())


def dtype_of(number: int) -> torch.dtype:
    """Return the dtype of a number of `VkDataType`.

    Raises:
        ParseFailure: there is no such type.
    """
    names = [name for name, value in schema().enums["VkDataType"][1].items() if value == number]
    dtype = getattr(torch, names[0].lower(), None) if names else None
    if not isinstance(dtype, torch.dtype):
        raise ParseFailure(f"{WHAT}: there is no datatype {number}")
    return dtype


def read_graph(data: Data) -> tuple[Record, memoryview]:
    """Return the graph of a payload and its inline constants.

    Raises:
        ParseFailure: the payload is malformed.
    """
    payload = memoryview(data).cast("B")
    if bytes(payload[4:8]) != MAGIC:
        raise ParseFailure(f"{WHAT}: bytes 4 to 8 are {bytes(payload[4:8])!r}, not {MAGIC!r}")
    graph, constants = split_header(payload, WHAT)
    return read_root(graph, schema(), what=WHAT), constants
