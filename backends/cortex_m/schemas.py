"""The `cortex_m` library's operator declarations, from the file that ExecuTorch ships."""

import functools
import re

from stepwell.backends.executorch.reading.read import shipped
from stepwell.dialects.aten.schema import Schema, parse_schema
from stepwell.dialects.cmsis.ops import LIBRARY_OPS, CmsisOp

_DECLARATION = re.compile(r"^- func: (cortex_m::\S.*)$", re.MULTILINE)


@functools.cache
def declarations() -> dict[str, Schema]:
    """Return, for each operator, the schema of its out variant, including `out`."""
    text = shipped("backends", "cortex_m", "ops", "operators.yaml").read_text()
    schemas = [parse_schema(found) for found in _DECLARATION.findall(text)]
    return {schema.operator: schema for schema in schemas}


@functools.cache
def op_classes() -> dict[str, type[CmsisOp]]:
    """Return the op class of each kernel (`cortex_m::transpose.out`) of the installed library."""
    known = declarations()
    return {f"cortex_m::{cls.OPERATOR}.out": cls for cls in LIBRARY_OPS if cls.OPERATOR in known}


def field_of(argument: str) -> str:
    """Return the field of an op for a schema argument (`self` is not usable as a field in
    Python).
    """
    return "self_" if argument == "self" else argument
