"""Conversion between ExecuTorch's element types and torch's dtypes."""

from __future__ import annotations

from stepwell.backends.executorch.container import ScalarType
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError

_NAMES = {
    ScalarType.BYTE: "uint8",
    ScalarType.CHAR: "int8",
    ScalarType.SHORT: "int16",
    ScalarType.INT: "int32",
    ScalarType.LONG: "int64",
    ScalarType.HALF: "float16",
    ScalarType.FLOAT: "float32",
    ScalarType.DOUBLE: "float64",
    ScalarType.COMPLEXFLOAT: "complex64",
    ScalarType.BOOL: "bool",
    ScalarType.BFLOAT16: "bfloat16",
    ScalarType.FLOAT8E5M2: "float8_e5m2",
    ScalarType.FLOAT8E4M3FN: "float8_e4m3fn",
    ScalarType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    ScalarType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    ScalarType.UINT16: "uint16",
    ScalarType.UINT32: "uint32",
    ScalarType.UINT64: "uint64",
}
"""Element type → the name of torch's dtype."""
_SCALAR_TYPES = {name: scalar_type for scalar_type, name in _NAMES.items()}


def torch_dtype(scalar_type: ScalarType) -> torch.dtype:
    """Return the torch dtype of an ExecuTorch element type."""
    return getattr(torch, torch_name(scalar_type))


def torch_name(scalar_type: ScalarType) -> str:
    """Return the name of the torch dtype of an ExecuTorch element type, `float32`."""
    try:
        return _NAMES[scalar_type]
    except KeyError:
        raise StepwellError(f"element type {scalar_type.name} has no torch dtype") from None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def is_scalar_type(dtype: torch.dtype) -> bool:
    """Whether ExecuTorch has an element type for a torch dtype; complex128 has none."""
    return _name(dtype) in _SCALAR_TYPES


def scalar_type(dtype: torch.dtype) -> ScalarType:
    """Return the ExecuTorch element type of a torch dtype."""
    try:
        return _SCALAR_TYPES[_name(dtype)]
    except KeyError:
        raise StepwellError(
            f"dtype {dtype} has no ExecuTorch element type",
            help="convert the tensor to one of "
            + ", ".join(f"torch.{name}" for name in _SCALAR_TYPES),
        ) from None
