"""Read a `.pte` file's bytes, which are untrusted, as a container.

Files of any ExecuTorch 1.x are supported: with or without the extended header, constants inline or
in a segment, delegates inline or in segments. Any inconsistency raises `ParseFailure` or
`VerificationError`; reading takes time linear in the file.
"""

from __future__ import annotations

import functools
import importlib.util
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import (
    BoolList,
    Constant,
    Container,
    Data,
    Delegate,
    DelegateCall,
    DoubleList,
    Dynamism,
    External,
    Free,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    NamedData,
    OptionalTensorList,
    Planned,
    ScalarType,
    State,
    Storage,
    TensorList,
    TensorValue,
    Value,
)
from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError

_WHAT = "the .pte file"
_HEADER = struct.Struct("<4sIQQ")
_HEADER_AT = 8
_EXTERNAL = 1  # TensorDataLocation.EXTERNAL
_SEGMENT = 1  # DataLocation.SEGMENT


@functools.cache
def program_schema() -> FlatbufferSchema:
    """Parse the program schema that the installed ExecuTorch ships."""
    folder = shipped("schema")
    text = (folder / "program.fbs").read_text()
    return parse_schema(text, lambda name: (folder / name).read_text())


def shipped(*path: str) -> Path:
    """A file or folder of the installed ExecuTorch package, found without importing it."""
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
    root = read_root(view[:program_size], program_schema(), what=_WHAT)
    if root["version"] != 0:
        raise UnsupportedError(f"{_WHAT}: program version {root['version']}; version 0 is known")
    segments = _segments(root, view, segment_base)
    mutable: Sequence[Record] = root["mutable_data_segments"]
    if len(mutable) > 1:
        raise UnsupportedError(f"{_WHAT}: {len(mutable)} segments of mutable data; one is known")
    inline = [entry["data"] for entry in root["backend_delegate_data"]]
    container = Container(
        methods=tuple(_method(plan, inline, segments) for plan in root["execution_plan"]),
        constants=_constants(root, segments),
        mutable_data=_split(mutable[0], segments) if mutable else (b"",),
        named_data={
            _text(entry["key"], "a named datum"): NamedData(
                _pick(segments, entry["segment_index"], "segment")
            )
            for entry in root["named_data"]
        },
    )
    check(container)
    return container


def _extent(view: memoryview) -> tuple[int, int]:
    """The size of the FlatBuffer, and the start of the segments (0 if there are none)."""
    if len(view) < 16:
        raise ParseFailure(f"{_WHAT} has {len(view)} bytes, too few for a program")
    if len(view) < _HEADER_AT + _HEADER.size or bytes(view[8:12]) != b"eh00":
        return len(view), 0
    _, length, program_size, segment_base = _HEADER.unpack_from(view, _HEADER_AT)
    if length < _HEADER.size or program_size > len(view) or segment_base > len(view):
        raise ParseFailure(
            f"{_WHAT} has {len(view)} bytes, but its header states a program of "
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
                f"{_WHAT} has {len(view)} bytes, but segment {index} ends at {start + size}",
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
    """The pieces of a segment that start at the given offsets; the first is reserved."""
    offsets: list[int] = described["offsets"]
    if len(offsets) < 2:
        return (b"",)
    segment = _pick(segments, described["segment_index"], "segment")
    ends = [*offsets[1:], len(segment)]
    for start, end in zip(offsets, ends, strict=True):
        if not 0 <= start <= end <= len(segment):
            raise ParseFailure(f"{_WHAT}: data from byte {start} to {end} of {len(segment)}")
    pieces = zip(offsets[1:], ends[1:], strict=True)
    return (b"", *(segment[start:end] for start, end in pieces))


def _pick(items: Sequence[Any], index: int, what: str) -> Any:
    if not 0 <= index < len(items):
        raise ParseFailure(f"{_WHAT} names {what} {index} of {len(items)}")
    return items[index]


def _text(text: str | None, what: str) -> str:
    if text is None:
        raise ParseFailure(f"{_WHAT}: {what} has no name")
    return text


def _method(plan: Record, inline: Sequence[memoryview], segments: Sequence[memoryview]) -> Method:
    name = _text(plan["name"], "a method")
    if len(plan["chains"]) != 1:
        raise UnsupportedError(
            f"{_WHAT}: method {name} has {len(plan['chains'])} chains; one is known"
        )
    kernels = [
        f"{_text(operator['name'], 'an operator')}.{operator['overload']}"
        if operator["overload"]
        else _text(operator["name"], "an operator")
        for operator in plan["operators"]
    ]
    specs: Record = plan["container_meta_type"] or {}
    return Method(
        name=name,
        values=tuple(_value(entry["val"]) for entry in plan["values"]),
        inputs=tuple(plan["inputs"]),
        outputs=tuple(plan["outputs"]),
        instructions=tuple(
            _instruction(entry["instr_args"], kernels)
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
    backend = _text(entry["id"], "a delegate")
    where = entry["processed"]
    if where is None:
        raise ParseFailure(f"{_WHAT}: a delegate of {backend} has no payload")
    source = segments if where["location"] == _SEGMENT else inline
    return Delegate(
        backend,
        _pick(source, where["index"], "delegate payload"),
        tuple(
            (_text(option["key"], "an option"), bytes(option["value"]))
            for option in entry["compile_specs"]
        ),
    )


def _instruction(union: tuple[str, Record] | None, kernels: Sequence[str]) -> Instruction:
    match union:
        case ("KernelCall", call):
            return KernelCall(_pick(kernels, call["op_index"], "operator"), tuple(call["args"]))
        case ("DelegateCall", call):
            return DelegateCall(call["delegate_index"], tuple(call["args"]))
        case ("MoveCall", move):
            return Move(move["move_from"], move["move_to"])
        case ("JumpFalseCall", jump):
            return JumpFalse(jump["cond_value_index"], jump["destination_instruction"])
        case ("FreeCall", free):
            return Free(free["value_index"])
        case _:
            raise ParseFailure(f"{_WHAT}: an instruction is empty")


_PLAIN: dict[str, Callable[[Record], Value]] = {
    "Int": lambda v: v["int_val"],
    "Bool": lambda v: v["bool_val"],
    "Double": lambda v: v["double_val"],
    "String": lambda v: _text(v["string_val"], "a string value"),
    "Null": lambda v: None,
    "IntList": lambda v: IntList(tuple(v["items"])),
    "BoolList": lambda v: BoolList(tuple(bool(item) for item in v["items"])),
    "DoubleList": lambda v: DoubleList(tuple(v["items"])),
    "TensorList": lambda v: TensorList(tuple(v["items"])),
    "OptionalTensorList": lambda v: OptionalTensorList(tuple(v["items"])),
}


def _value(union: tuple[str, Record] | None) -> Value:
    if union is None:
        return None
    kind, value = union
    return _tensor(value) if kind == "Tensor" else _PLAIN[kind](value)


def _tensor(value: Record) -> TensorValue:
    try:
        scalar_type = ScalarType(value["scalar_type"])
        dynamism = Dynamism(value["shape_dynamism"])
    except ValueError as error:
        raise ParseFailure(f"{_WHAT}: {error}") from None
    if value["storage_offset"]:
        raise UnsupportedError(f"{_WHAT}: a tensor has a storage offset; the runtime knows none")
    extra: Record = value["extra_tensor_info"] or {}
    name: str | None = extra.get("fully_qualified_name")
    where: Record | None = value["allocation_info"]
    data_index: int = value["data_buffer_idx"]
    storage: Storage = None
    if extra.get("location") == _EXTERNAL:
        storage = External(_text(name, "an external tensor"))
        name = None
    elif where is not None:
        offset = where["memory_offset_low"] | where["memory_offset_high"] << 32
        storage = (
            State(where["memory_id"], offset, data_index)
            if data_index
            else Planned(where["memory_id"], offset)
        )
    elif data_index:
        storage = Constant(data_index)
    return TensorValue(
        scalar_type, tuple(value["sizes"]), tuple(value["dim_order"]), storage, dynamism, name
    )
