"""Serialize a container: records of ExecuTorch's program schema, written as a FlatBuffer.

ExecuTorch's own serializer takes ten times as long for programs of many instructions, and importing
it takes seconds. ExecuTorch's deserializer reads the result as an equal program; tests
compare the two on every kind of value.
"""

from collections.abc import Mapping
from dataclasses import replace

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import (
    Container,
    Data,
    Delegate,
    Method,
)
from stepwell.backends.executorch.reading.read import program_schema
from stepwell.backends.executorch.records import instruction_record, value_record
from stepwell.backends.executorch.segments import Segments, memory_range, with_program_header
from stepwell.backends.executorch.writing.memory import ALIGNMENT
from stepwell.backends.flatbuffer import Record
from stepwell.backends.flatbuffer_writer import write_root

_VERSION = 0


def to_bytes(container: Container) -> bytes:
    """Return the `.pte` file of a container. Raises `VerificationError` if it is inconsistent."""
    return b"".join(to_parts(container))


def to_parts(
    container: Container,
    *,
    tail: Mapping[str, Data] | None = None,
    tail_offset: int | None = None,
) -> list[Data]:
    """Return the parts that `to_bytes` joins; named data are separate parts, after all others.

    Args:
        container: the container to write.
        tail: the named data at the end of the file, in their order.
        tail_offset: the position of the tail if it is already in the file.
    """
    tail = tail or {}
    check(container)
    segments = Segments()
    constants = _subsegments(segments, container.constants, ALIGNMENT)
    mutable = (
        [_subsegments(segments, container.mutable_data, 1)]
        if len(container.mutable_data) > 1
        else []
    )
    payloads = _Payloads(segments)
    plans = [_plan(method, payloads) for method in container.methods]
    shared = _shared(segments, container, constants, tail)
    before = {
        key: value
        for key, value in container.named_data.items()
        if key not in shared and key not in tail
    }
    named = shared | segments.add_named(before)
    first = len(segments.table)
    last = {key: replace(container.named_data[key], data=data) for key, data in tail.items()}
    named |= segments.add_named(last)
    program: Record = {
        "version": _VERSION,
        "execution_plan": plans,
        "constant_buffer": [],
        "backend_delegate_data": payloads.inline,
        "segments": segments.table,
        "constant_segment": constants,
        "mutable_data_segments": mutable,
        "named_data": [{"key": key, "segment_index": index} for key, index in named.items()],
    }
    flatbuffer = write_root(program_schema(), program)
    return with_program_header(
        flatbuffer, segments, None if tail_offset is None else (first, tail_offset)
    )


def _subsegments(segments: Segments, items: tuple[Data, ...], alignment: int) -> Record:
    """Store data consecutively in one segment; return a record with the offset of each."""
    pieces: list[Data] = []
    offsets: list[int] = []
    size = 0
    for data in items:
        padding = -size % alignment
        offsets.append(size + padding)
        pieces.extend([bytes(padding), data])
        size += padding + len(data)
    return {"segment_index": segments.add_pieces(pieces), "offsets": offsets}


def _shared(
    segments: Segments, container: Container, constants: Record, tail: Mapping[str, Data]
) -> dict[str, int]:
    """Return the segments of named data that are also constants, inside the constants' segment; by
    key.

    A language model's tied table is read by the embedding, a kernel, and by the last product, in a
    delegate. The runtime loads segments one by one, so that two of them may overlap.
    """
    begin = segments.table[constants["segment_index"]]["offset"]
    offsets = {
        memory_range(data): begin + offset
        for data, offset in zip(container.constants, constants["offsets"], strict=True)
        if len(data)
    }
    indices: dict[str, int] = {}
    for key, value in container.named_data.items():
        is_apart = key in tail or not len(value.data)
        offset = None if is_apart else offsets.get(memory_range(value.data))
        if offset is not None and offset % value.alignment == 0:
            indices[key] = len(segments.table)
            segments.table.append({"offset": offset, "size": len(value.data)})
    return indices


class _Payloads:
    """Assigns delegates' payloads to segments: equal ones share one, empty ones are inline."""

    def __init__(self, segments: Segments) -> None:
        self.inline: list[Record] = []
        self._segments = segments
        self._index_of: dict[bytes, int] = {}

    def place(self, payload: Data) -> Record:
        """Store a payload, and return the record that refers to it."""
        if not len(payload):
            self.inline.append({"data": b""})
            return {"location": 0, "index": len(self.inline) - 1}
        data = bytes(payload)
        index = self._index_of.get(data)
        if index is None:
            index = self._index_of[data] = self._segments.add(data)
        return {"location": 1, "index": index}


def _plan(method: Method, payloads: _Payloads) -> Record:
    kernels: dict[str, int] = {}
    instructions = [{"instr_args": instruction_record(i, kernels)} for i in method.instructions]
    return {
        "name": method.name,
        "container_meta_type": {
            "encoded_inp_str": method.input_spec,
            "encoded_out_str": method.output_spec,
        },
        "values": [{"val": value_record(value)} for value in method.values],
        "inputs": method.inputs,
        "outputs": method.outputs,
        "chains": [{"inputs": (), "outputs": (), "instructions": instructions}],
        "operators": [_operator(kernel) for kernel in kernels],
        "delegates": [_delegate(delegate, payloads) for delegate in method.delegates],
        "non_const_buffer_sizes": method.arena_sizes,
    }


def _operator(kernel: str) -> Record:
    name, _, overload = kernel.partition(".")
    return {"name": name, "overload": overload}


def _delegate(delegate: Delegate, payloads: _Payloads) -> Record:
    return {
        "id": delegate.backend,
        "processed": payloads.place(delegate.payload),
        "compile_specs": [{"key": key, "value": value} for key, value in delegate.options],
    }
