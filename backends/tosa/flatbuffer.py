"""`Graph` to bytes and back, by the schema that tosa-tools ships; the bytes are untrusted."""

from collections.abc import Hashable
from functools import cache
from typing import Any

from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.backends.tosa.graph import AttributeValue, Graph, Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.codes import class_of_code, code_of_attribute, fields_by_code
from stepwell.dialects.tosa.generated import IdentityOp
from stepwell.dialects.tosa.schema import schema_path
from stepwell.dialects.tosa.structural import VariableReadOp, VariableWriteOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError

_VERSION = ("_major", "_minor", "_patch", "_draft")
_OPTIONAL = (
    "variable", "is_unranked", "variable_name", "scale_type", "scale_data", "block_shape",
)  # fmt: skip
"""Fields of a tensor that most lack; the schema of tosa-tools 2026.5 has none for scales."""
_WRITTEN_AS = {VariableReadOp.CODE: IdentityOp.CODE, VariableWriteOp.CODE: IdentityOp.CODE}
"""As tosa-opt writes them: the reference model runs them only as IDENTITY with their attributes."""


def read_graph(data: bytes | memoryview) -> Graph:
    """Read the graph in a `.tosa` file.

    Raises:
        ParseFailure: the bytes are not a TOSA flatbuffer, are damaged, or of another major version.
    """
    root = read_root(data, tosa_schema(), what="TOSA flatbuffer")
    version: Record | None = root["version"]
    if version is None:
        raise ParseFailure("the TOSA flatbuffer has no version")
    major, minor, patch, draft = (version[name] for name in _VERSION)
    if major != 1:
        raise ParseFailure(
            f"TOSA version {major}.{minor} is not supported", help="versions 1.x can be read"
        )
    regions = [_read_region(record) for record in root["regions"]]
    if not regions:
        raise ParseFailure("the TOSA flatbuffer has no region")
    return Graph(regions, (int(major), int(minor), int(patch), bool(draft)))


@cache
def tosa_schema() -> FlatbufferSchema:
    """Parse the `tosa.fbs` that tosa-tools ships."""
    return parse_schema(schema_path().read_text())


def _read_region(record: Record) -> Region:
    name = record["name"] or ""
    if len(record["blocks"]) != 1:
        raise ParseFailure(
            f"region {name!r} has {len(record['blocks'])} basic blocks", help="one is supported"
        )
    block: Record = record["blocks"][0]
    return Region(
        name,
        tuple(block["inputs"]),
        tuple(block["outputs"]),
        [_read_operator(operator) for operator in block["operators"]],
        [_read_tensor(tensor) for tensor in block["tensors"]],
        [_read_shape(shape) for shape in block["shapes"]],
    )


def _read_shape(record: Record) -> Shape:
    return Shape(record["name"] or "", record["rank"], bytes(record["data"]))


def _read_tensor(record: Record) -> Tensor:
    name = record["name"] or ""
    if record["offset"] > 1 or record.get("scale_offset", 0) > 1:
        raise ParseFailure(
            f"tensor {name!r} keeps its data outside the flatbuffer",
            help="files above 2 GiB are not supported",
        )
    optional = {key: held for key in _OPTIONAL if (held := record.get(key))}
    if scales := optional.get("scale_data"):
        optional["scale_data"] = bytes(scales)
    return Tensor(name, tuple(record["shape"]), record["type"], bytes(record["data"]), **optional)


def _read_operator(record: Record) -> Operator:
    code: int = record["op"]
    held: tuple[str, Record] | None = record["attribute"]
    if held is not None:
        # tosa-opt writes IDENTITY with the attributes of VARIABLE_READ: the attributes decide.
        code = code_of_attribute(held[0]) or code
    cls = class_of_code(code)
    if cls is None:
        raise ParseFailure(f"operator number {code} is not in the schema")
    attributes: dict[str, AttributeValue] = {}
    for field in cls.FIELDS:
        if held is None:
            raise ParseFailure(f"{cls.name}: the attributes are missing")
        value = held[1][field.name]
        if field.kind in ("i64s", "i32s"):
            value = tuple(value)
        elif field.kind in ("value", "bytes"):
            value = bytes(value)
        attributes[field.name] = "" if value is None else value
    location: Record | None = record["location"]
    text = (location["text"] or "") if location else ""
    return Operator(code, tuple(record["inputs"]), tuple(record["outputs"]), attributes, text)


def write_graph(graph: Graph) -> bytes:
    """Return the `.tosa` file of a graph."""
    _needs_no_newer(graph)
    version = dict(zip(_VERSION, graph.version, strict=True))
    regions = [_region(region) for region in graph.regions]
    return write_root(tosa_schema(), {"version": version, "regions": regions})


def _needs_no_newer(graph: Graph) -> None:
    """Raise StepwellError if the installed schema cannot represent a graph."""
    schema = tosa_schema()
    fields = {field.name for field in schema.tables["TosaTensor"]}
    newer = [
        "block-scaled tensors"
        for region in graph.regions
        for tensor in region.tensors
        if tensor.scale_type and "scale_type" not in fields
    ]
    newer += [
        f"operator number {operator.code}"
        for region in graph.regions
        for operator in region.operators
        if operator.code not in schema.unions["Attribute"]
    ]
    if newer:
        raise StepwellError(
            f"the installed tosa-tools lacks {' and '.join(dict.fromkeys(newer))}",
            help="pip install 'tosa-tools>=2026.8'",
        )


def _region(region: Region) -> Record:
    written: dict[Hashable, Record] = {}
    block = {
        "name": region.name,
        "operators": [_operator(op, written) for op in region.operators],
        "tensors": [_tensor(tensor) for tensor in region.tensors],
        "inputs": region.inputs,
        "outputs": region.outputs,
        "shapes": [_shape(shape) for shape in region.shapes],
    }
    return {"name": region.name, "blocks": [block]}


def _tensor(tensor: Tensor) -> Record:
    required = {
        "name": tensor.name,
        "shape": tensor.shape,
        "type": tensor.dtype,
        "data": tensor.data,
    }
    return required | {key: getattr(tensor, key) or None for key in _OPTIONAL}


def _shape(shape: Shape) -> Record:
    return {"name": shape.name, "rank": shape.rank, "data": shape.data}


def _operator(operator: Operator, written: dict[Hashable, Record]) -> Record:
    """Write an operator; operators with the same location share the table that names it."""
    text, location = operator.location, None
    if text:
        location = written.get(text) or written.setdefault(text, {"text": text})
    return {
        "op": _WRITTEN_AS.get(operator.code, operator.code),
        "attribute": _attribute(operator, written),
        "inputs": operator.inputs,
        "outputs": operator.outputs,
        "location": location,
    }


def _attribute(operator: Operator, written: dict[Hashable, Record]) -> tuple[str, Record]:
    """Write an operator's attribute; equal attributes share a table."""
    code = operator.code
    member, _ = tosa_schema().unions["Attribute"][code]
    key = (code, *operator.attributes.values())
    attributes: Any = written.get(key)
    if attributes is None:
        fields = fields_by_code(code)
        assert fields is not None, f"operator number {code}"
        attributes = written[key] = {
            field.name: operator.attributes[field.name] for field in fields
        }
    return member, attributes
