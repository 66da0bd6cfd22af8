"""What the emitter writes, refuses, and shares."""

import dataclasses
import struct
from typing import Any

import pytest
import torch
from dialect_building import Case, Writer, grouped, per_channel
from dialect_cases import all_cases
from hypothesis import given
from hypothesis import strategies as st
from isolated_run import Trial, container_of, run_alone, unpacked_constants
from xdsl.ir import SSAValue

import stepwell.dialects.xnnpack as xnn
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.flatbuffer import read_root
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.backends.xnnpack.emit import pack_int4, payload, unpack_int4
from stepwell.backends.xnnpack.schema import schema, split_header
from stepwell.ir.diagnostics import ArtifactError, UnsupportedError
from stepwell.ir.dtypes import f32


def emitted(case: Case, **options: bool) -> Any:
    trial = case.trial()
    return payload(trial.delegate, trial.weights, **options)


def graph_of(data: Any) -> dict[str, Any]:
    graph, _ = split_header(memoryview(data))
    return read_root(graph, schema(), what="payload")


def merged_graph() -> dict[str, Any]:
    """All nodes and values of all cases in one graph, as records."""
    made = [emitted(case, embed_unpacked_constants=True) for case in all_cases()]
    graphs = [graph_of(entry.payload) for entry in made]
    return graphs[0] | {
        name: [entry for graph in graphs for entry in graph[name]]
        for name in ("xnodes", "xvalues", "constant_data")
    }


def as_dataclass(name: str, record: dict[str, Any]) -> Any:
    """A record as the dataclasses that ExecuTorch's serializer takes."""
    from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as stock

    cls = getattr(stock, name)
    members = {"quant_params": None, "xnode_union": None, "xvalue_union": None}
    tables = {"tensor_value": "XNNTensorValue", "output_min_max": "OutputMinMax"}
    vectors = {"xnodes": "XNode", "xvalues": "XValue", "constant_data": "ConstantDataOffset"}
    given: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        value = record.get(field.name)
        if field.name in members and value is not None:
            value = as_dataclass(*value)
        elif field.name in tables and value is not None:
            value = as_dataclass(tables[field.name], value)
        elif field.name in vectors:
            value = [as_dataclass(vectors[field.name], entry) for entry in value or ()]
        elif isinstance(value, float) and value in (float("inf"), float("-inf")):
            value = "+inf" if value > 0 else "-inf"
        given[field.name] = value
    return cls(**given)


def test_our_flatbuffer_says_what_the_stock_serializer_says() -> None:
    from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import (
        serialize_xnnpack_binary,
    )

    graph = merged_graph()
    ours = read_root(write_root(schema(), graph), schema(), what="ours")
    theirs = serialize_xnnpack_binary(as_dataclass("XNNGraph", graph), bytearray())
    assert len(graph["xnodes"]) > 400
    assert graph_of(theirs) == ours


def test_the_runtime_s_own_verifier_takes_tables_at_any_alignment() -> None:
    """A 64-bit field asks for 8-byte places, which offsets from the end must keep."""
    data = emitted(all_cases()[0]).payload
    graph, _ = split_header(memoryview(data))
    assert len(graph) % 8 == 0
    (root,) = struct.unpack_from("<I", graph)
    assert root % 4 == 0


UNPACKED: tuple[tuple[str, Any], ...] = (
    ("add", lambda w, x, c: xnn.Add.make(x, c)),
    ("subtract", lambda w, x, c: xnn.Subtract.make(c, x)),
    ("multiply", lambda w, x, c: xnn.Multiply.make(x, c)),
    ("divide", lambda w, x, c: xnn.Divide.make(x, c)),
    ("minimum", lambda w, x, c: xnn.Minimum.make(x, c)),
    ("maximum", lambda w, x, c: xnn.Maximum.make(x, c)),
    ("prelu", lambda w, x, c: xnn.PReLU.make(x, c)),
    ("concatenate2", lambda w, x, c: xnn.Concatenate2.make(x, c, axis=0)),
    ("concatenate3", lambda w, x, c: xnn.Concatenate3.make(x, x, c, axis=0)),
    ("batch_matrix_multiply", lambda w, x, c: xnn.BatchMatrixMultiply.make(x, c)),
    ("fully_connected", lambda w, x, c: xnn.FullyConnected.make(c, x)),
    ("abs", lambda w, x, c: xnn.Abs.make(c)),
)


@pytest.mark.parametrize(("name", "make"), UNPACKED, ids=[name for name, _ in UNPACKED])
def test_a_constant_that_is_not_packed_is_refused_unless_asked_for(name: str, make: Any) -> None:
    table = torch.randn(4, 4)

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        made = writer(make(writer, x, writer.weight(table)))
        return writer(xnn.Add.make(made, x)) if name == "abs" else made

    case = Case(name, (torch.randn(4, 4),), write)
    with pytest.raises(UnsupportedError, match="which XNNPACK does not copy and runtimes free"):
        emitted(case)
    found = unpacked_constants(emitted(case, embed_unpacked_constants=True).payload)
    assert len(found) == 1
    assert len(found[0][2]) == 64


def test_every_constant_that_may_not_be_embedded_is_named_at_once() -> None:
    def write(writer: Writer, x: SSAValue) -> SSAValue:
        first = writer(xnn.Add.make(x, writer.weight(torch.randn(4))))
        return writer(xnn.Multiply.make(first, writer.weight(torch.randn(4))))

    with pytest.raises(UnsupportedError) as caught:
        emitted(Case("two", (torch.randn(4),), write))
    assert len(caught.value.problems) == 2


def test_filters_and_biases_are_packed_and_nothing_else_is_embedded() -> None:
    tried = 0
    for case in all_cases():
        try:
            made = emitted(case)
        except UnsupportedError:
            continue
        tried += bool(made.named_data)
        assert unpacked_constants(made.payload) == [], case.name
    assert tried > 100


def test_a_weight_both_packed_and_pointed_to_is_two_values() -> None:
    """A value that is packed anywhere is freed after loading."""
    table = torch.randn(4, 4)

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        weight = writer.weight(table)
        return writer(xnn.Add.make(writer(xnn.FullyConnected.make(x, weight)), weight))

    made = emitted(Case("both", (torch.randn(4, 4),), write), embed_unpacked_constants=True)
    graph = graph_of(made.payload)
    (_, linear), (_, add) = (node["xnode_union"] for node in graph["xnodes"])
    assert linear["filter_id"] != add["input2_id"]
    assert len(made.named_data) == 1


def test_attention_is_refused_with_the_reason() -> None:
    shape = (1, 2, 3, 4)

    def write(writer: Writer, q: SSAValue, scale: SSAValue, mask: SSAValue) -> SSAValue:
        return writer(xnn.ScaledDotProductAttention.make(q, q, q, scale, mask))

    inputs = (torch.randn(shape), torch.ones(4), torch.zeros(3, 3))
    with pytest.raises(UnsupportedError, match="Unhandled node type"):
        emitted(Case("attention", inputs, write))


def test_equal_constants_are_stored_once_by_all_delegates() -> None:
    table = torch.randn(8, 8)

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        return writer(xnn.FullyConnected.make(x, writer.weight(table)))

    case = Case("shared", (torch.randn(2, 8),), write)
    trials = [case.trial(), case.trial()]
    held = container_of(trials).named_data
    assert [len(entry.data) for entry in held.values()] == [256]
    assert len(to_bytes(container_of(trials))) < len(to_bytes(container_of(trials[:1]))) + 4096


def test_a_delegate_that_kills_the_runtime_costs_only_itself() -> None:
    case = Case("abs", (torch.randn(4),), lambda w, x: w(xnn.Abs.make(x)))
    bad = case.trial()
    # The verifier would refuse this: a tensor without elements divides by zero in XNNPACK, or not.
    broken = Trial(bad.delegate, bad.weights, (torch.randn(5, 5, 5, 5, 5, 5, 5),))
    first, second, third = run_alone([case.trial(), broken, case.trial()])
    assert not isinstance(first, Exception)
    assert isinstance(second, ArtifactError)
    assert not isinstance(third, Exception)


@given(st.integers(1, 5), st.integers(1, 19), st.integers(0, 3))
def test_packed_nibbles_unpack(outputs: int, inputs: int, begin: int) -> None:
    weight = torch.randint(-8, 8, (begin + outputs, inputs), dtype=torch.int8)[begin:]
    packed = pack_int4(weight)
    assert packed.shape == (outputs, (inputs + 1) // 2)
    assert torch.equal(unpack_int4(packed, inputs), weight)


def test_group_scales_travel_as_bfloat16_in_a_buffer_of_their_own() -> None:
    scales = torch.full((4, 2), 2.0**-6)
    weight = torch.zeros(4, 64, dtype=torch.int8)

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        held = writer.weight(weight, grouped(scales, 32))
        return writer(xnn.FullyConnected.make(writer.dynamic(x), held, element=f32))

    made = emitted(Case("groups", (torch.randn(2, 64),), write))
    assert sorted(len(entry.data) for entry in made.named_data.values()) == [16, 128]
    assert all(entry.alignment == 16 for entry in made.named_data.values())


def test_channel_scales_travel_in_a_buffer_of_their_own() -> None:
    weight = torch.zeros(4, 64, dtype=torch.int8)

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        held = writer.weight(weight, per_channel(8, [0.1, 0.2, 0.3, 0.4]))
        return writer(xnn.FullyConnected.make(writer.dynamic(x), held, element=f32))

    made = emitted(Case("channels", (torch.randn(2, 64),), write))
    expected = struct.pack("<4f", 0.1, 0.2, 0.3, 0.4)
    assert expected in [bytes(entry.data) for entry in made.named_data.values()]
