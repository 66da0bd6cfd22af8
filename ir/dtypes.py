"""One table of element types: torch dtype ↔ xDSL type ↔ bytes per element.

Signless integers stand for torch's signed ones and `ui8`…`ui64` for unsigned, as in torch-mlir's
TOSA and linalg output; bool is `i1`.
"""

from __future__ import annotations

import torch
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

from stepwell.ir.diagnostics import UnsupportedError

f16, f32, f64, bf16 = Float16Type(), Float32Type(), Float64Type(), BFloat16Type()
i1, i8, i16, i32, i64 = (IntegerType(width) for width in (1, 8, 16, 32, 64))
ui8, ui16, ui32, ui64 = (IntegerType(width, Signedness.UNSIGNED) for width in (8, 16, 32, 64))

_TABLE: tuple[tuple[torch.dtype, Attribute], ...] = (
    (torch.float32, f32),
    (torch.float64, f64),
    (torch.float16, f16),
    (torch.bfloat16, bf16),
    (torch.bool, i1),
    (torch.int8, i8),
    (torch.int16, i16),
    (torch.int32, i32),
    (torch.int64, i64),
    (torch.uint8, ui8),
    (torch.uint16, ui16),
    (torch.uint32, ui32),
    (torch.uint64, ui64),
    (torch.complex32, ComplexType(f16)),
    (torch.complex64, ComplexType(f32)),
    (torch.complex128, ComplexType(f64)),
    (torch.float8_e4m3fn, Float8E4M3FNType()),
    (torch.float8_e5m2, Float8E5M2Type()),
    (torch.float8_e4m3fnuz, Float8E4M3FNUZType()),
    (torch.float8_e5m2fnuz, Float8E5M2FNUZType()),
    (torch.float8_e8m0fnu, Float8E8M0FNUType()),
    (torch.float4_e2m1fn_x2, Float4E2M1FNType()),
)

_TO_ELEMENT = dict(_TABLE)
_TO_TORCH: dict[Attribute, torch.dtype] = {element: dtype for dtype, element in _TABLE}


def element_type(dtype: torch.dtype) -> Attribute:
    """The xDSL element type of a torch dtype."""
    try:
        return _TO_ELEMENT[dtype]
    except KeyError:
        raise UnsupportedError(
            f"dtype {dtype} has no element type in the IR",
            help="convert the tensor to one of " + ", ".join(str(d) for d in _TO_ELEMENT),
        ) from None


def torch_dtype(element: Attribute) -> torch.dtype:
    """The torch dtype of an xDSL element type."""
    try:
        return _TO_TORCH[element]
    except KeyError:
        raise UnsupportedError(f"element type {element} has no torch dtype") from None


def has_torch_dtype(element: Attribute) -> bool:
    """Whether torch can hold elements of this type (quantised and MX types it cannot)."""
    return element in _TO_TORCH


def dtype_name(element: Attribute) -> str:
    """The name torch gives an element type (`float32`, `uint8`); one it lacks is named likewise."""
    if element in _TO_TORCH:
        return str(_TO_TORCH[element]).removeprefix("torch.")
    if isinstance(element, IntegerType):
        sign = "u" if element.signedness.data == Signedness.UNSIGNED else ""
        return f"{sign}int{element.width.data}"
    return str(element)


def is_float(element: Attribute) -> bool:
    """f16, bf16, f32, f64 or a reduced-precision float."""
    return has_torch_dtype(element) and torch_dtype(element).is_floating_point


def is_integer(element: Attribute) -> bool:
    """An integer or bool element."""
    return isinstance(element, IntegerType)


def element_bytes(element: Attribute) -> int:
    """Bytes that one element takes in torch's dense layout."""
    return torch_dtype(element).itemsize
