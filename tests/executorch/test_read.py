"""Reading bytes nobody vouches for: an error or a sound container, never a crash or a hang."""

import struct
from typing import Any

import pytest
import torch
from eager import Stateful, exported

from stepwell.backends.executorch.container import (
    Constant,
    Delegate,
    NamedData,
    ScalarType,
    State,
    TensorValue,
)
from stepwell.backends.executorch.reading.read import program_schema, read_container
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.flatbuffer import parse_schema, read_root
from stepwell.ir.diagnostics import ParseFailure, StepwellError

F = ScalarType.FLOAT


@pytest.fixture(scope="module")
def pte() -> bytes:
    builder = ContainerBuilder()
    builder.add_named_data({"blob": NamedData(b"named bytes", 16)})
    for name in ("one", "two"):
        method = builder.method(name)
        x, y = method.tensor(F, (2, 3)), method.tensor(F, (2, 3))
        w = method.constant(F, (2, 3), bytes(24))
        s = method.state("s", F, (2, 3), bytes(range(24)))
        method.input(x)
        method.call("aten::add.out", [x, w, method.scalar(1), y, y])
        method.call("aten::sum.dim_IntList_out", [y, method.ints([0, 1]), s, s])
        method.delegate(
            Delegate("AnyBackend", b"payload of " + name.encode(), (("k", b"v"),)), [x, y]
        )
        method.outputs([y])
    return to_bytes(builder.finish())


def test_segments_delegates_options_and_named_data_are_read(pte: bytes) -> None:
    container = read_container(pte)
    assert [method.name for method in container.methods] == ["one", "two"]
    delegate = container.methods[1].delegates[0]
    assert (delegate.backend, bytes(delegate.payload)) == ("AnyBackend", b"payload of two")
    assert delegate.options == (("k", b"v"),)
    assert bytes(container.named_data["blob"].data) == b"named bytes"
    stored = [
        value.storage for value in container.methods[0].values if isinstance(value, TensorValue)
    ]
    assert Constant(1) in stored and State(2, 0, 1) in stored
    assert bytes(container.mutable_data[1]) == bytes(range(24))


def test_every_truncation_is_an_error(pte: bytes) -> None:
    for length in range(0, len(pte), 7):
        try:
            read_container(pte[:length])
        except StepwellError:
            continue
        # Only padding behind the last segment may be lost without notice.
        assert length > len(pte) - 128


def test_shared_vectors_cannot_be_unfolded_without_end() -> None:
    """Five levels of vectors, each naming the level below 200 times: 200⁵ tables in 5 KiB."""
    schema = parse_schema("table Node { children: [Node]; } root_type Node;")
    fanout = 200
    data = bytearray(struct.pack("<I", 4 + 8) + b"NODE" + struct.pack("<HHH", 6, 8, 4) + b"\0\0")
    # Each level: table (soffset to the vtable, offset to its vector), vector of offsets forward.
    del data[:]
    data += struct.pack("<I", 16)  # Root offset.
    data += struct.pack("<HHHH", 6, 8, 4, 0) + bytes(4)  # The one vtable, at byte 4.
    for level in range(6):
        table = len(data)
        data += struct.pack("<iI", table - 4, 4)
        count = 0 if level == 5 else fanout
        data += struct.pack("<I", count)
        first = len(data)
        below = first + 4 * count
        data += b"".join(struct.pack("<I", below - (first + 4 * i)) for i in range(count))
    with pytest.raises(ParseFailure, match="referred to too many times"):
        read_root(bytes(data), schema, what="a tree")


def test_the_reader_agrees_with_executorchs_own_on_a_stock_program() -> None:
    from executorch.exir import to_edge
    from executorch.exir._serialize._program import deserialize_pte_binary

    def counts(held: Any, x: torch.Tensor) -> torch.Tensor:
        held.seen.add_(x[0])
        return torch.cat([(x @ held.weight).relu(), held.seen[None]])

    model = Stateful(counts, seen=torch.zeros(4), weight=torch.randn(4, 4))
    data = to_edge(exported(model, torch.randn(2, 4))).to_executorch().buffer
    container = read_container(data)
    stock = deserialize_pte_binary(data).program.execution_plan[0]
    method = container.methods[0]
    assert len(method.values) == len(stock.values)
    assert list(method.inputs) == stock.inputs and list(method.outputs) == stock.outputs
    assert list(method.arena_sizes) == stock.non_const_buffer_sizes
    for ours, theirs in zip(method.values, stock.values, strict=True):
        if isinstance(ours, TensorValue):
            assert list(ours.sizes) == theirs.val.sizes
            assert int(ours.scalar_type) == int(theirs.val.scalar_type)
    assert len(method.instructions) == len(stock.chains[0].instructions)


def test_the_program_schema_is_the_installed_ones() -> None:
    schema = program_schema()
    assert schema.identifier == b"ET12" and schema.root == "Program"
