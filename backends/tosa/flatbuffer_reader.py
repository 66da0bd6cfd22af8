"""Bytes to `Graph`, through the schema that tosa-tools ships and the checked reader."""

from __future__ import annotations

from functools import cache

from stepwell.backends.flatbuffer import FlatbufferSchema, Record, parse_schema, read_root
from stepwell.backends.tosa.graph import AttributeValue, Graph, Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.codes import class_of_code, code_of_attribute
from stepwell.dialects.tosa.schema import schema_path
from stepwell.ir.diagnostics import ParseFailure


def read_graph(data: bytes | memoryview) -> Graph:
    """Read the graph in a `.tosa` file.

    Raises:
        ParseFailure: not a TOSA flatbuffer, damaged, or of another major version.
    """
    root = read_root(data, tosa_schema(), what="TOSA flatbuffer")
    version: Record | None = root["version"]
    if version is None:
        raise ParseFailure("the TOSA flatbuffer has no version")
    major, minor, patch = (int(version[name]) for name in ("_major", "_minor", "_patch"))
    if major != 1:
        raise ParseFailure(
            f"TOSA version {major}.{minor} is not supported", help="versions 1.x can be read"
        )
    regions = [_region(record) for record in root["regions"]]
    if not regions:
        raise ParseFailure("the TOSA flatbuffer has no region")
    return Graph(regions, (major, minor, patch, bool(version["_draft"])))


@cache
def tosa_schema() -> FlatbufferSchema:
    """Parse the `tosa.fbs` that tosa-tools ships."""
    return parse_schema(schema_path().read_text())


def _region(record: Record) -> Region:
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
        [_operator(operator) for operator in block["operators"]],
        [_tensor(tensor) for tensor in block["tensors"]],
        [_shape(shape) for shape in block["shapes"]],
    )


def _shape(record: Record) -> Shape:
    return Shape(record["name"] or "", record["rank"], bytes(record["data"]))


def _tensor(record: Record) -> Tensor:
    name = record["name"] or ""
    # In the schema of tosa-tools 2026.5, a tensor has no field for scales.
    if record["offset"] > 1 or record.get("scale_offset", 0) > 1:
        raise ParseFailure(
            f"tensor {name!r} keeps its data outside the flatbuffer",
            help="files above 2 GiB are not supported",
        )
    return Tensor(
        name,
        tuple(record["shape"]),
        record["type"],
        bytes(record["data"]),
        bool(record["is_unranked"]),
        bool(record["variable"]),
        record["variable_name"] or "",
        record.get("scale_type", 0),
        bytes(record.get("scale_data", b"")),
        record.get("block_shape", 0),
    )


def _operator(record: Record) -> Operator:
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
