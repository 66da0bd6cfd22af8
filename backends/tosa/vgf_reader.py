"""Read a `.vgf` file as a TOSA-level program: its module is SPIR-V, its weights are separate.

Source: the file format of Arm's ML SDK VGF library: a header of 128 bytes, three flatbuffers
(modules, the sequence of segments, resources) and a section of constants.
"""

import struct
from functools import cache
from typing import Any

from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.backends.tosa.graph import Graph
from stepwell.backends.tosa.read import program_of
from stepwell.backends.tosa.scalars import restore_scalars
from stepwell.backends.tosa.spirv import narrowed, read_module
from stepwell.ir.diagnostics import ParseFailure, UnsupportedError
from stepwell.ir.program import Program

MAGIC = b"VGF1"
VERSIONS = (4, 5)
"""Supported minor versions of format 0."""
_HEADER = 128
_SECTIONS = 16
"""Positions of pairs of an offset and a size: modules, sequence, resources, constants."""
_ALONE = (1 << 32) - 1
_CONSTANTS = b"CONST00\0"
_RECORD = struct.Struct("<IiQQ")
"""The record of a constant: resource, sparse dimension, size, offset in the payload."""
_TABLES = """
table Spirv { words: [uint32]; }
table Source { code: string; }
union Code { Spirv, Glsl: Source, Hlsl: Source }
enum Kind: uint8 { COMPUTE, GRAPH }
table Module { type: Kind; name: string; entry_point: string; code: Code; }
table Modules { modules: [Module]; }
table Slot { binding: uint; mrt_index: uint; }
table Set { bindings: [Slot]; set_index: uint = 4294967295; }
table Range { stage_flags: uint; offset: uint; size: uint; }
table Description { shape: [int64]; strides: [int64]; }
table Sampler {
    min_filter: uint32; mag_filter: uint32; address_mode_u: uint32; address_mode_v: uint32;
    border_color: uint32;
}
union Extra { Sampler }
table Resource {
    vk_descriptor_type: uint32; vk_format: uint32; category: uint8; description: Description;
    extra_config: Extra; alias_group_id: uint = 4294967295;
}
table Resources { mrt_entry: [Resource]; }
table Segment {
    type: Kind; name: string; module_index: uint; set_infos: [Set]; inputs: [Slot]; outputs: [Slot];
    constants: [uint]; dispatch_shape: [uint]; push_constant_ranges: [Range];
}
table Sequence {
    segments: [Segment]; inputs: [Slot]; outputs: [Slot];
    input_names: [string]; output_names: [string];
}
"""


def read_vgf(data: bytes) -> Program:
    """Read the program in a `.vgf` file of one graph, at level `tosa`.

    Inputs and outputs are named as in the file, which has numbers instead of the graph's names.

    Raises:
        ParseFailure: the bytes are not a `.vgf`, or are damaged.
        UnsupportedError: the file has shaders, several segments, or sparse constants.
    """
    if data[:4] != MAGIC or len(data) < _HEADER:
        raise ParseFailure("the bytes do not begin as a .vgf does")
    major, minor = data[8], data[9]
    if major != 0 or minor not in VERSIONS:
        raise UnsupportedError(
            f"the .vgf has format {major}.{minor}",
            help="supported are " + ", ".join(f"0.{version}" for version in VERSIONS),
        )
    modules = _table(data, 0, "Modules")["modules"]
    sequence = _table(data, 1, "Sequence")
    segments: list[Record] = sequence["segments"]
    if len(segments) != 1 or segments[0]["type"] != 1:
        raise UnsupportedError(
            f"the .vgf has {len(segments)} segments",
            help="one graph can be read",
        )
    (segment,) = segments
    if segment["module_index"] >= len(modules):
        raise ParseFailure(f"the .vgf has no module {segment['module_index']}")
    code: tuple[str, Record] | None = modules[segment["module_index"]]["code"]
    if code is None or code[0] != "Spirv":
        raise UnsupportedError("the .vgf does not contain its module as SPIR-V")
    taken, given = (list(dict.fromkeys(_slots(segment, w))) for w in ("inputs", "outputs"))
    if _slots(sequence, "inputs") != taken:
        raise UnsupportedError("the inputs of the .vgf are not those of its graph")
    inputs = _names(sequence, "input")
    outputs = dict(zip(_slots(sequence, "outputs"), _names(sequence, "output"), strict=True))
    own = [outputs.get(slot, f"output_{at}") for at, slot in enumerate(given)]
    module = read_module(code[1]["words"], inputs, own)
    values = dict(zip((*taken, *given), (*inputs, *module.region.outputs), strict=True))
    resources: list[Record] = _table(data, 2, "Resources")["mrt_entry"]
    scalars = {name for slot, name in values.items() if _is_scalar(resources, slot)}
    groups = _groups(resources)
    passed = {group: slot for slot in taken if (group := groups.get(slot)) is not None}
    try:
        module.region.outputs = tuple(
            values[slot if slot in values else passed[groups[slot]]]
            for slot in _slots(sequence, "outputs")
        )
    except KeyError:
        raise UnsupportedError("no segment computes an output of the .vgf") from None
    held = _constants(data)
    for tensor in module.region.tensors:
        number = module.stored.get(tensor.name)
        if number is not None:
            tensor.data = narrowed(_stored(held, segment["constants"], number), tensor.dtype)
    restore_scalars(module.region, scalars)
    return program_of(Graph([module.region]))


@cache
def _schema(root: str) -> FlatbufferSchema:
    return parse_schema(f"{_TABLES} root_type {root};")


def _section(data: bytes, number: int) -> bytes:
    offset, size = struct.unpack_from("<QQ", data, _SECTIONS + 16 * number)
    if offset + size > len(data):
        raise ParseFailure(f"section {number} of the .vgf runs past its end")
    return data[offset : offset + size]


def _table(data: bytes, number: int, root: str) -> Record:
    return read_root(_section(data, number), _schema(root), what=f".vgf, {root.lower()}")


def _slots(record: Record, what: str) -> list[int]:
    """Return the resources of the inputs or outputs of a segment, or of the whole sequence."""
    return [slot["mrt_index"] for slot in record[what]]


def _names(sequence: Record, what: str) -> list[str]:
    """Return names of inputs or outputs: those in the file if they are distinct, otherwise
    numbers.
    """
    names: list[str] = sequence[f"{what}_names"]
    count = len(sequence[f"{what}s"])
    unique = len(names) == count == len(set(names))
    return names if unique else [f"{what}_{number}" for number in range(count)]


def _is_scalar(resources: list[Record], slot: int) -> bool:
    """Whether a resource has rank 0; a resource without a description has not."""
    description: Record | None = resources[slot]["description"] if slot < len(resources) else None
    return description is not None and not description["shape"]


def _groups(resources: list[Record]) -> dict[int, int]:
    """Return the alias group of each resource; resources of a group share memory."""
    return {
        at: resource["alias_group_id"]
        for at, resource in enumerate(resources)
        if resource["alias_group_id"] != _ALONE
    }


def _constants(data: bytes) -> list[bytes]:
    """Return the data of each constant."""
    section = _section(data, 3)
    if not section:
        return []
    if section[:8] != _CONSTANTS or len(section) < 16:
        raise UnsupportedError("the constants of the .vgf have a format older than 0.4")
    (count,) = struct.unpack_from("<Q", section, 8)
    start = 16 + _RECORD.size * count
    if start > len(section):
        raise ParseFailure(f"the .vgf has {count} constants, and no place for them")
    payload = section[start:]
    found: list[bytes] = []
    for number in range(count):
        record: Any = _RECORD.unpack_from(section, 16 + _RECORD.size * number)
        _, sparse, size, offset = record
        if sparse != -1:
            raise UnsupportedError(f"constant {number} of the .vgf is sparse")
        if offset + size > len(payload):
            raise ParseFailure(f"constant {number} of the .vgf runs past the end")
        found.append(payload[offset : offset + size])
    return found


def _stored(held: list[bytes], used: list[int], number: int) -> bytes:
    """Return the data of the constant with this number in a segment's module."""
    if number >= len(used) or used[number] >= len(held):
        raise ParseFailure(f"the .vgf has no constant {number}")
    return held[used[number]]
