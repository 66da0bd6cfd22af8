"""The table of element types: torch dtype ↔ xDSL type ↔ bytes per element.

Signless integers represent torch's signed integers, and `ui8`…`ui64` its unsigned ones, as in
torch-mlir's TOSA and linalg output; bool is `i1`.
"""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
)
from xdsl.ir import Attribute

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import UnsupportedError

f16, f32, f64, bf16 = Float16Type(), Float32Type(), Float64Type(), BFloat16Type()
i1, i8, i16, i32, i64 = (IntegerType(width) for width in (1, 8, 16, 32, 64))
complex64 = ComplexType(f32)
f8E4M3FN, f8E5M2 = Float8E4M3FNType(), Float8E5M2Type()
ui8, ui16, ui32, ui64 = (IntegerType(width, Signedness.UNSIGNED) for width in (8, 16, 32, 64))

ELEMENT_TYPES: dict[str, Attribute] = {
    "float32": f32,
    "float64": f64,
    "float16": f16,
    "bfloat16": bf16,
    "bool": i1,
    "int8": i8,
    "int16": i16,
    "int32": i32,
    "int64": i64,
    "uint8": ui8,
    "uint16": ui16,
    "uint32": ui32,
    "uint64": ui64,
    "complex32": ComplexType(f16),
    "complex64": complex64,
    "complex128": ComplexType(f64),
    "float8_e4m3fn": f8E4M3FN,
    "float8_e5m2": f8E5M2,
    "float8_e4m3fnuz": Float8E4M3FNUZType(),
    "float8_e5m2fnuz": Float8E5M2FNUZType(),
    "float8_e8m0fnu": Float8E8M0FNUType(),
    "float4_e2m1fn_x2": Float4E2M1FNType(),
}
"""The element type of each torch dtype, by the dtype's name in torch."""

_BY_ELEMENT: dict[Attribute, str] = {element: name for name, element in ELEMENT_TYPES.items()}
_FLOATS = frozenset(
    element for element, name in _BY_ELEMENT.items() if name.startswith(("float", "bfloat"))
)


@cache
def _dtypes() -> tuple[dict[torch.dtype, Attribute], dict[Attribute, torch.dtype]]:
    """Map torch's dtypes to element types and back; built on first use because it imports torch."""
    pairs = [(getattr(torch, name), element) for name, element in ELEMENT_TYPES.items()]
    return dict(pairs), {element: dtype for dtype, element in pairs}


def element_type(dtype: torch.dtype) -> Attribute:
    """Return the xDSL element type of a torch dtype."""
    elements, _ = _dtypes()
    try:
        return elements[dtype]
    except KeyError:
        raise UnsupportedError(
            f"dtype {dtype} has no element type in the IR",
            help="convert the tensor to one of " + ", ".join(str(d) for d in elements),
        ) from None


def torch_dtype(element: Attribute) -> torch.dtype:
    """Return the torch dtype of an xDSL element type."""
    try:
        return _dtypes()[1][element]
    except KeyError:
        raise UnsupportedError(f"element type {element} has no torch dtype") from None


def has_torch_dtype(element: Attribute) -> bool:
    """Whether torch has a dtype for this element type (it has none for quantized and MX types)."""
    return element in _BY_ELEMENT


def dtype_name(element: Attribute) -> str:
    """Return torch's name of an element type (`float32`, `uint8`); other types are named
    similarly.
    """
    if element in _BY_ELEMENT:
        return _BY_ELEMENT[element]
    if isinstance(element, IntegerType):
        sign = "u" if element.signedness.data == Signedness.UNSIGNED else ""
        return f"{sign}int{element.width.data}"
    return str(element)


def is_float(element: Attribute) -> bool:
    """Whether the element type is f16, bf16, f32, f64 or a reduced-precision float."""
    return element in _FLOATS


def is_integer(element: Attribute) -> bool:
    """Whether the element type is an integer or bool."""
    return isinstance(element, IntegerType)


def element_bytes(element: Attribute) -> int:
    """Return the number of bytes of one element in torch's dense layout."""
    return torch_dtype(element).itemsize
