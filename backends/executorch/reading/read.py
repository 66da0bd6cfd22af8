"""Read a `.pte` file's bytes, which are untrusted, as a container.

Files of any ExecuTorch 1.x are supported: with or without the extended header, constants inline or
in a segment, delegates inline or in segments. Any inconsistency raises `ParseFailure` or
`VerificationError`; reading takes time linear in the file.
"""

import functools
import importlib.util
import struct
from collections.abc import Sequence
from pathlib import Path

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import Container, Data, Delegate, Method, NamedData
from stepwell.backends.executorch.records import WHAT, instruction_of, pick, text, value_of
from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError

_HEADER = struct.Struct("<4sIQQ")
_HEADER_AT = 8
_SEGMENT = 1  # DataLocation.SEGMENT


@functools.cache
def program_schema() -> FlatbufferSchema:
    """Parse the program schema that the installed ExecuTorch ships."""
    folder = shipped("schema")
    text = (folder / "program.fbs").read_text()
    return parse_schema(text, lambda name: (folder / name).read_text())


def shipped(*path: str) -> Path:
    """Return a file or folder of the installed ExecuTorch package, found without importing it."""
    spec = importlib.util.find_spec("executorch")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(root).joinpath(*path)
        if found.exists():
            return found
    raise StepwellError(
        f"the installed executorch package lacks {'/'.join(path)}",
        help="install executorch 1.5",
    )


def read_container(data: bytes | bytearray | memoryview) -> Container:
    """Read the container in a `.pte` file's bytes. Constants stay views of `data`."""
    view = memoryview(data)
    program_size, segment_base = _extent(view)
    root = read_root(view[:program_size], program_schema(), what=WHAT)
    if root["version"] != 0:
        raise UnsupportedError(f"{WHAT}: program version {root['version']}; version 0 is known")
    segments = _segments(root, view, segment_base)
    mutable: Sequence[Record] = root["mutable_data_segments"]
    if len(mutable) > 1:
        raise UnsupportedError(
            f"{WHAT}: {len(mutable)} segments of mutable data; at most one is supported"
        )
    inline = [entry["data"] for entry in root["backend_delegate_data"]]
    container = Container(
        methods=tuple(_method(plan, inline, segments) for plan in root["execution_plan"]),
        constants=_constants(root, segments),
        mutable_data=_split(mutable[0], segments) if mutable else (b"",),
        named_data={
            text(entry["key"], "a named datum"): NamedData(
                pick(segments, entry["segment_index"], "segment")
            )
            for entry in root["named_data"]
        },
    )
    check(container)
    return container


def _extent(view: memoryview) -> tuple[int, int]:
    """Return the size of the FlatBuffer, and the start of the segments (0 if there are none)."""
    if len(view) < 16:
        raise ParseFailure(f"{WHAT} has {len(view)} bytes, too few for a program")
    if len(view) < _HEADER_AT + _HEADER.size or bytes(view[8:12]) != b"eh00":
        return len(view), 0
    _, length, program_size, segment_base = _HEADER.unpack_from(view, _HEADER_AT)
    if length < _HEADER.size or program_size > len(view) or segment_base > len(view):
        raise ParseFailure(
            f"{WHAT} has {len(view)} bytes, but its header states a program of "
            f"{program_size} bytes and segments from byte {segment_base}",
            help="the file may have been cut short",
        )
    return program_size, segment_base


def _segments(root: Record, view: memoryview, base: int) -> list[memoryview]:
    segments: list[memoryview] = []
    for index, segment in enumerate(root["segments"]):
        start, size = base + segment["offset"], segment["size"]
        if start + size > len(view):
            raise ParseFailure(
                f"{WHAT} has {len(view)} bytes, but segment {index} ends at {start + size}",
                help="the file may have been cut short",
            )
        segments.append(view[start : start + size])
    return segments


def _constants(root: Record, segments: Sequence[memoryview]) -> tuple[Data, ...]:
    described = root["constant_segment"]
    if described is not None and described["offsets"]:
        return _split(described, segments)
    inline = [entry["storage"] for entry in root["constant_buffer"]]
    return (b"", *(memoryview(data) for data in inline[1:]))


def _split(described: Record, segments: Sequence[memoryview]) -> tuple[Data, ...]:
    """Return the pieces of a segment that start at the given offsets; the first is reserved."""
    offsets: list[int] = described["offsets"]
    if len(offsets) < 2:
        return (b"",)
    segment = pick(segments, described["segment_index"], "segment")
    ends = [*offsets[1:], len(segment)]
    for start, end in zip(offsets, ends, strict=True):
        if not 0 <= start <= end <= len(segment):
            raise ParseFailure(f"{WHAT}: data from byte {start} to {end} of {len(segment)}")
    pieces = zip(offsets[1:], ends[1:], strict=True)
    return (b"", *(segment[start:end] for start, end in pieces))


def _method(plan: Record, inline: Sequence[memoryview], segments: Sequence[memoryview]) -> Method:
    name = text(plan["name"], "a method")
    if len(plan["chains"]) != 1:
        raise UnsupportedError(
            f"{WHAT}: method {name} has {len(plan['chains'])} chains; one is known"
        )
    kernels = [
        f"{text(operator['name'], 'an operator')}.{operator['overload']}"
        if operator["overload"]
        else text(operator["name"], "an operator")
        for operator in plan["operators"]
    ]
    specs: Record = plan["container_meta_type"] or {}
    return Method(
        name=name,
        values=tuple(value_of(entry["val"]) for entry in plan["values"]),
        inputs=tuple(plan["inputs"]),
        outputs=tuple(plan["outputs"]),
        instructions=tuple(
            instruction_of(entry["instr_args"], kernels)
            for entry in plan["chains"][0]["instructions"]
        ),
        delegates=tuple(_delegate(entry, inline, segments) for entry in plan["delegates"]),
        arena_sizes=tuple(plan["non_const_buffer_sizes"]),
        input_spec=specs.get("encoded_inp_str") or "",
        output_spec=specs.get("encoded_out_str") or "",
    )


def _delegate(
    entry: Record, inline: Sequence[memoryview], segments: Sequence[memoryview]
) -> Delegate:
    backend = text(entry["id"], "a delegate")
    where = entry["processed"]
    if where is None:
        raise ParseFailure(f"{WHAT}: a delegate of {backend} has no payload")
    source = segments if where["location"] == _SEGMENT else inline
    return Delegate(
        backend,
        pick(source, where["index"], "delegate payload"),
        tuple(
            (text(option["key"], "an option"), bytes(option["value"]))
            for option in entry["compile_specs"]
        ),
    )
