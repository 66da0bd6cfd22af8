"""The schema's numbers of operators and element types, in both directions."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    IntegerType,
)
from xdsl.ir import Attribute

from stepwell.dialects.tosa.attributes import MxInt8Type
from stepwell.dialects.tosa.base import Field, TosaOp
from stepwell.dialects.tosa.generated import DTYPE_CODES, OPERATORS
from stepwell.dialects.tosa.structural import STRUCTURAL
from stepwell.ir.dtypes import bf16, f16, f32, i1, i8, i16, i32, i64

i4, i48 = IntegerType(4), IntegerType(48)
f8e4m3, f8e5m2, e8m0 = Float8E4M3FNType(), Float8E5M2Type(), Float8E8M0FNUType()
f6e2m3, f6e3m2, f4e2m1 = Float6E2M3FNType(), Float6E3M2FNType(), Float4E2M1FNType()
mxint8 = MxInt8Type()

ELEMENTS: dict[str, Attribute] = {
    "BOOL": i1,
    "INT4": i4,
    "INT8": i8,
    "INT16": i16,
    "INT32": i32,
    "INT48": i48,
    "INT64": i64,
    "FP32": f32,
    "FP16": f16,
    "BF16": bf16,
    "FP8E4M3": f8e4m3,
    "FP8E5M2": f8e5m2,
    "FP6E2M3": f6e2m3,
    "FP6E3M2": f6e3m2,
    "FP4E2M1": f4e2m1,
    "FP8UE8M0": e8m0,
    "MXINT8": mxint8,
}
"""The specification's name of each element type."""

PAYLOAD_ELEMENTS: dict[str, Attribute] = {
    "fp8e4m3": f8e4m3,
    "fp8e5m2": f8e5m2,
    "fp6e2m3": f6e2m3,
    "fp6e3m2": f6e3m2,
    "fp4e2m1": f4e2m1,
    "mxint8": mxint8,
}
"""The element type of each MX payload."""

_ELEMENT_OF = {DTYPE_CODES[name]: element for name, element in ELEMENTS.items()}
_CODE_OF = {element: code for code, element in _ELEMENT_OF.items()}
_PAYLOAD_OF = {element: name for name, element in PAYLOAD_ELEMENTS.items()}
_CLASSES: dict[int, type[TosaOp]] = {cls.CODE: cls for cls in (*OPERATORS, *STRUCTURAL) if cls.CODE}
_ATTRIBUTES = {
    cls.__name__.removesuffix("Op") + "Attribute": code for code, cls in _CLASSES.items()
}


def element_of_code(code: int) -> Attribute | None:
    """Return the element type of a DType number."""
    return _ELEMENT_OF.get(code)


def code_of_element(element: Attribute) -> int | None:
    """Return the DType number of an element type; None if TOSA has no such type."""
    return _CODE_OF.get(element)


def payload_of_element(element: Attribute) -> str | None:
    """Return the MX payload of an element type, such as `fp8e4m3`."""
    return _PAYLOAD_OF.get(element)


def class_of_code(code: int) -> type[TosaOp] | None:
    """Return the op class of an operator number."""
    return _CLASSES.get(code)


def code_of_attribute(table: str) -> int | None:
    """Return the operator number whose attribute table has this name, such as `Conv2dAttribute`."""
    return _ATTRIBUTES.get(table)


def fields_by_code(code: int) -> tuple[Field, ...] | None:
    """Return the attributes of an operator number; None if there is no such operator."""
    cls = _CLASSES.get(code)
    return None if cls is None else cls.FIELDS
