"""What is written is what ExecuTorch's own serializer writes, as its own deserializer reads it."""

import time
from typing import Any

import numpy as np
import pytest
import torch

from stepwell.backends.executorch.container import (
    Container,
    Delegate,
    Dynamism,
    NamedData,
    ScalarType,
)
from stepwell.backends.executorch.external import external_to_bytes, read_external
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.serialize import to_bytes

F = ScalarType.FLOAT


def _everything() -> Container:
    builder = ContainerBuilder()
    shared = b"named bytes"
    builder.add_named_data({"a": NamedData(shared, 16), "b": NamedData(shared, 16)})
    builder.add_named_data({"page": NamedData(bytes(5), 4096)})
    for name in ("zażółć", "two"):
        method = builder.method(name)
        x = method.tensor(F, (2, 3), dynamism=Dynamism.BOUNDED)
        y = method.tensor(ScalarType.HALF, (1, 2, 3, 4), dim_order=(0, 2, 3, 1))
        w = method.constant(F, (2, 3), bytes(range(24)), name="layer.weight")
        v = method.constant(ScalarType.BYTE, (5,), b"12345")
        s = method.state("s", F, (2, 3), bytes(range(24)))
        flag = method.tensor(ScalarType.BOOL, ())
        method.input(x)
        for value in (True, 7, -(2**63), 1.5, float("inf"), "text", None):
            method.scalar(value)
        lists = [method.ints([1, 2, 1]), method.bools([True, False]), method.floats([0.5, -1.0])]
        lists += [method.tensors([x, y]), method.tensors([None, w], optional=True)]
        jump = method.jump_if_false(flag)
        method.call("aten::add.out", [x, w, v, y, *lists])
        method.call("aten::sym_size", [x, s])
        method.land(jump)
        method.move(method.variable(1), method.variable(2))
        method.delegate(Delegate("Backend", b"same payload", (("k", b"v"), ("e", b""))), [x, y])
        method.delegate(Delegate("Backend", b"payload of " + name.encode()), [x, y])
        method.outputs([y, x], input_spec="in", output_spec="out")
    return builder.finish()


def _stock_program(data: bytes) -> Any:
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(data)


def test_executorchs_deserializer_and_serializer_take_a_program_there_and_back() -> None:
    """Ours → stock object → stock bytes → our container: nothing is lost or moved on the way."""
    from executorch.exir._serialize._program import serialize_pte_binary

    container = _everything()
    read_by_stock = _stock_program(to_bytes(container))
    written_by_stock = bytes(
        serialize_pte_binary(read_by_stock, extract_delegate_segments=True)
    )  # fmt: skip
    again = read_container(written_by_stock)
    assert again.methods == container.methods
    assert {k: bytes(v.data) for k, v in again.named_data.items()} == {
        k: bytes(v.data) for k, v in container.named_data.items()
    }
    for ours, theirs in zip(container.constants, again.constants, strict=True):
        assert bytes(theirs).startswith(bytes(ours))
    assert [bytes(d) for d in again.mutable_data] == [bytes(d) for d in container.mutable_data]
    assert _stock_program(written_by_stock).program == _stock_program(to_bytes(container)).program


def test_named_data_stands_at_the_alignment_it_asks_for() -> None:
    data = np.frombuffer(to_bytes(_everything()), np.uint8)
    segments_begin = int.from_bytes(data[24:32].tobytes(), "little")
    view = read_container(data.data).named_data["page"].data
    offset = np.frombuffer(view, np.uint8).ctypes.data - data.ctypes.data
    assert (offset - segments_begin) % 4096 == 0


def test_equal_payloads_and_shared_named_data_are_written_once() -> None:
    data = to_bytes(_everything())
    assert data.count(b"same payload") == 1 and data.count(b"named bytes") == 1


def test_executorchs_reader_reads_the_separate_data_file() -> None:
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    builder = ContainerBuilder(external_constants=True)
    method = builder.method("forward")
    weight = torch.randn(3, 4)
    w = method.constant(F, (3, 4), weight.numpy().tobytes())
    method.outputs([w])
    builder.add_named_data({"blob": NamedData(b"delegate data", 64)}, external=True)
    container = builder.finish()
    data = external_to_bytes(container)
    assert data is not None
    payload = FlatTensorSerializer().deserialize(Cord(data))
    ours = {key: bytes(view) for key, view in read_external(data).items()}
    stock = {
        key: bytes(payload.buffers[entry.buffer_index]) for key, entry in payload.named_data.items()
    }
    assert ours == stock and b"delegate data" in ours.values()
    layouts = [e.tensor_layout for e in payload.named_data.values() if e.tensor_layout]
    assert [layout.sizes for layout in layouts] == [[3, 4]]


def _chain(length: int) -> Container:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x = method.tensor(F, (4, 4))
    method.input(x)
    for _ in range(length):
        y = method.tensor(F, (4, 4))
        method.call("aten::mul.Scalar_out", [x, method.scalar(1.0), y, y])
        x = y
    method.outputs([x])
    return builder.finish()


@pytest.mark.parametrize("stage", ["build", "write", "read"])
def test_time_grows_linearly_in_instructions(stage: str) -> None:
    def seconds(length: int) -> float:
        best = float("inf")
        for _ in range(2):
            container = _chain(length) if stage == "write" else None
            data = to_bytes(_chain(length)) if stage == "read" else b""
            start = time.process_time()
            if container is not None:
                to_bytes(container)
            elif data:
                read_container(data)
            else:
                _chain(length)
            best = min(best, time.process_time() - start)
        return best / length

    assert seconds(8000) < 3 * seconds(1000)
