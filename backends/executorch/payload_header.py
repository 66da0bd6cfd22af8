"""The header of delegate payloads that consist of a FlatBuffer and inline constants.

XNNPACK and Vulkan have the same header of 30 bytes, each with its own magic number.

Source: `XNNHeader` and `VulkanDelegateHeader` in ExecuTorch's serialization of the two backends.
"""

import struct

from stepwell.ir.diagnostics import ParseFailure

HEADER = struct.Struct("<4s4sHIIIQ")
"""Four zeros, the magic number, the header's size, the graph's and the constants' extents."""


def split_header(payload: memoryview, what: str) -> tuple[memoryview, memoryview]:
    """Return the graph and the inline constants of a payload; both are views of it.

    The caller checks the magic number. `what` names the format in errors.

    Raises:
        ParseFailure: the payload is too short or its header points outside it.
    """
    if len(payload) < HEADER.size:
        raise ParseFailure(f"{what}: {len(payload)} bytes, its header takes 30")
    _, _, size, graph_at, graph_size, constants_at, constants_size = HEADER.unpack_from(payload)
    if size != HEADER.size:
        raise ParseFailure(f"{what}: the header says it has {size} bytes, not 30")
    for name, begin, extent in (
        ("graph", graph_at, graph_size),
        ("constants", constants_at, constants_size),
    ):
        if begin + extent > len(payload):
            raise ParseFailure(f"{what}: the {name} end at byte {begin + extent} of {len(payload)}")
    return (
        payload[graph_at : graph_at + graph_size],
        payload[constants_at : constants_at + constants_size],
    )
