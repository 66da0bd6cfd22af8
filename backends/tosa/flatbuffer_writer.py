"""`Graph` to bytes, by the schema."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from stepwell.backends.flatbuffer import Record
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.backends.tosa.flatbuffer_reader import tosa_schema
from stepwell.backends.tosa.graph import Graph, Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.codes import fields_by_code
from stepwell.dialects.tosa.generated import IdentityOp
from stepwell.dialects.tosa.structural import VariableReadOp, VariableWriteOp
from stepwell.ir.diagnostics import StepwellError

_WRITTEN_AS = {VariableReadOp.CODE: IdentityOp.CODE, VariableWriteOp.CODE: IdentityOp.CODE}
"""As tosa-opt writes them: the reference model runs them only as IDENTITY with their attributes."""


def write_graph(graph: Graph) -> bytes:
    """Return the `.tosa` file of a graph."""
    _needs_no_newer(graph)
    version = dict(zip(("_major", "_minor", "_patch", "_draft"), graph.version, strict=True))
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
        if tensor.scale_dtype and "scale_type" not in fields
    ]
    newer += [
        f"operator number {operator.code}"
        for region in graph.regions
        for operator in region.operators
        if operator.code not in schema.unions["Attribute"]
    ]
    if newer:
        raise StepwellError(
            f"the installed tosa-tools has no {', no '.join(dict.fromkeys(newer))}",
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
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "type": tensor.dtype,
        "data": tensor.data,
        "variable": tensor.variable or None,
        "is_unranked": tensor.unranked or None,
        "variable_name": tensor.variable_name or None,
        "scale_type": tensor.scale_dtype or None,
        "scale_data": tensor.scale_data or None,
        "block_shape": tensor.block_shape or None,
    }


def _shape(shape: Shape) -> Record:
    return {"name": shape.name, "rank": shape.rank, "data": shape.data}


def _operator(operator: Operator, written: dict[Hashable, Record]) -> Record:
    """Operators of one location share the table that names it."""
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
    """Operators with equal attributes share a table; most operators have no attributes."""
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
