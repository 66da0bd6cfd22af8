"""`Graph` to bytes, as the schema lays them out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from flatbuffers import Builder

from stepwell.backends.tosa.graph import AttributeValue, Graph, Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.codes import fields_by_code
from stepwell.dialects.tosa.generated import IdentityOp
from stepwell.dialects.tosa.structural import VariableReadOp, VariableWriteOp
from stepwell.ir.diagnostics import StepwellError

IDENTIFIER = b"TOSA"

ALIGNMENT = 8
"""Constant data starts at a multiple of 8 bytes (force_align in the schema)."""

_WRITTEN_AS = {VariableReadOp.CODE: IdentityOp.CODE, VariableWriteOp.CODE: IdentityOp.CODE}
"""As tosa-opt writes them: the reference model runs them only as IDENTITY with their attributes."""

_Written = dict[Hashable, int]
"""Where a table of some content was written already."""

LARGEST = 2**31 - 2**20
"""A flatbuffer's offsets reach 2 GiB."""


def write_graph(graph: Graph) -> bytes:
    """The `.tosa` file of a graph."""
    size = sum(
        len(tensor.data) + len(tensor.scale_data)
        for region in graph.regions
        for tensor in region.tensors
    )
    if size > LARGEST:
        raise StepwellError(
            f"the constants take {size} bytes: a TOSA flatbuffer holds at most 2 GiB",
            help="quantise the weights, or split the model",
        )
    builder = Builder(size + size // 64 + 65536)
    regions = _offsets(builder, [_region(builder, region) for region in graph.regions])
    builder.StartObject(4)
    major, minor, patch, draft = graph.version
    for slot, number in enumerate((major, minor, patch)):
        builder.PrependInt32Slot(slot, number, -1)
    builder.PrependBoolSlot(3, draft, True)
    version = builder.EndObject()
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, version, 0)
    builder.PrependUOffsetTRelativeSlot(1, regions, 0)
    builder.Finish(builder.EndObject(), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _region(builder: Builder, region: Region) -> int:
    tensors = _offsets(builder, [_tensor(builder, tensor) for tensor in region.tensors])
    shapes = _offsets(builder, [_shape(builder, shape) for shape in region.shapes])
    written: _Written = {}
    operators = _offsets(builder, [_operator(builder, op, written) for op in region.operators])
    inputs, outputs = _texts(builder, region.inputs), _texts(builder, region.outputs)
    name = builder.CreateSharedString(region.name)
    block = _table(builder, 6, (name, operators, tensors, inputs, outputs, shapes))
    blocks = _offsets(builder, [block])
    return _table(builder, 2, (name, blocks))


def _tensor(builder: Builder, tensor: Tensor) -> int:
    name = builder.CreateSharedString(tensor.name)
    shape = _i32s(builder, tensor.shape)
    data = _data(builder, tensor.data)
    scale = _data(builder, tensor.scale_data)
    variable = builder.CreateString(tensor.variable_name) if tensor.variable_name else 0
    builder.StartObject(14)
    for slot, offset in ((0, name), (1, shape), (3, data), (6, variable), (10, scale)):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    builder.PrependUint32Slot(2, tensor.dtype, 0)
    builder.PrependBoolSlot(4, tensor.variable, False)
    builder.PrependBoolSlot(5, tensor.unranked, False)
    builder.PrependUint32Slot(9, tensor.scale_dtype, 0)
    builder.PrependUint32Slot(11, tensor.block_shape, 0)
    return builder.EndObject()


def _shape(builder: Builder, shape: Shape) -> int:
    name = builder.CreateSharedString(shape.name)
    data = _data(builder, shape.data)
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUint32Slot(1, shape.rank, 0)
    builder.PrependUOffsetTRelativeSlot(2, data, 0)
    return builder.EndObject()


def _operator(builder: Builder, operator: Operator, written: _Written) -> int:
    inputs, outputs = _texts(builder, operator.inputs), _texts(builder, operator.outputs)
    attribute = _attributes(builder, operator, written)
    location = _location(builder, operator.location, written) if operator.location else 0
    builder.StartObject(6)
    builder.PrependUint32Slot(0, _WRITTEN_AS.get(operator.code, operator.code), 0)
    builder.PrependUint8Slot(1, operator.code, 0)
    for slot, offset in ((2, attribute), (3, inputs), (4, outputs), (5, location)):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return builder.EndObject()


def _location(builder: Builder, text: str, written: _Written) -> int:
    """Operators of one place share the table that names it."""
    if text not in written:
        written[text] = _table(builder, 1, (builder.CreateSharedString(text),))
    return written[text]


def _attributes(builder: Builder, operator: Operator, written: _Written) -> int:
    """Operators of equal attributes share a table: most operators have none."""
    key = (operator.code, *operator.attributes.values())
    if key not in written:
        written[key] = _attribute_table(builder, operator)
    return written[key]


def _attribute_table(builder: Builder, operator: Operator) -> int:
    fields = fields_by_code(operator.code)
    assert fields is not None, f"operator number {operator.code}"
    offsets = {
        field.slot: _reference(builder, operator.attributes[field.name])
        for field in fields
        if not isinstance(operator.attributes[field.name], int)
    }
    builder.StartObject(len(fields))
    for field in fields:
        value = operator.attributes[field.name]
        if field.slot in offsets:
            builder.PrependUOffsetTRelativeSlot(field.slot, offsets[field.slot], 0)
        elif isinstance(value, bool):
            builder.PrependBoolSlot(field.slot, value, False)
        elif isinstance(value, int):
            builder.PrependInt32Slot(field.slot, value, 0)
    return builder.EndObject()


def _reference(builder: Builder, value: AttributeValue) -> int:
    if isinstance(value, str):
        return builder.CreateSharedString(value)
    if isinstance(value, bytes):
        return _data(builder, value)
    assert isinstance(value, tuple)
    return _i32s(builder, value)


def _data(builder: Builder, data: bytes) -> int:
    builder.StartVector(1, len(data), ALIGNMENT)
    builder.head = builder.head - len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return builder.EndVector()


def _i32s(builder: Builder, values: Sequence[int]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependInt32(value)
    return builder.EndVector()


def _texts(builder: Builder, texts: Sequence[str]) -> int:
    return _offsets(builder, [builder.CreateSharedString(text) for text in texts])


def _offsets(builder: Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def _table(builder: Builder, slots: int, offsets: Sequence[int]) -> int:
    builder.StartObject(slots)
    for slot, offset in enumerate(offsets):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return builder.EndObject()
