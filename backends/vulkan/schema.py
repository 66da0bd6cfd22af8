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
_DTYPES = {
    "BOOL": torch.bool, "UINT8": torch.uint8, "INT8": torch.int8, "INT32": torch.int32,
    "INT64": torch.int64, "FLOAT16": torch.float16, "FLOAT32": torch.float32,
    "FLOAT64": torch.float64,
}  # fmt: skip


@cache
def schema() -> FlatbufferSchema:
    """Parse the schema that the installed ExecuTorch ships."""
    folder = shipped("backends", "vulkan", "serialization")
    return parse_schema((folder / "schema.fbs").read_text())


@cache
def _dtypes() -> dict[int, torch.dtype]:
    numbers = schema().enums["VkDataType"][1]
    return {number: _DTYPES[name] for name, number in numbers.items() if name in _DTYPES}


def dtype_of(number: int) -> torch.dtype:
    """Return the dtype of a number of `VkDataType`.

    Raises:
        ParseFailure: there is no such type.
    """
    if number not in _dtypes():
        raise ParseFailure(f"{WHAT}: there is no datatype {number}")
    return _dtypes()[number]


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
