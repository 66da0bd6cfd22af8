"""Conversion between ExecuTorch's element types and torch's dtypes."""

import torch

from stepwell.backends.executorch.container import ScalarType
from stepwell.ir.diagnostics import StepwellError

_TORCH_DTYPE: dict[ScalarType, torch.dtype] = {
    ScalarType.BYTE: torch.uint8,
    ScalarType.CHAR: torch.int8,
    ScalarType.SHORT: torch.int16,
    ScalarType.INT: torch.int32,
    ScalarType.LONG: torch.int64,
    ScalarType.HALF: torch.float16,
    ScalarType.FLOAT: torch.float32,
    ScalarType.DOUBLE: torch.float64,
    ScalarType.COMPLEXFLOAT: torch.complex64,
    ScalarType.BOOL: torch.bool,
    ScalarType.BFLOAT16: torch.bfloat16,
    ScalarType.FLOAT8E5M2: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ScalarType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ScalarType.UINT16: torch.uint16,
    ScalarType.UINT32: torch.uint32,
    ScalarType.UINT64: torch.uint64,
}
_SCALAR_TYPE = {dtype: scalar_type for scalar_type, dtype in _TORCH_DTYPE.items()}


def torch_dtype(scalar_type: ScalarType) -> torch.dtype:
    """Return the torch dtype of an ExecuTorch element type."""
    try:
        return _TORCH_DTYPE[scalar_type]
    except KeyError:
        raise StepwellError(f"element type {scalar_type.name} has no torch dtype") from None


def is_scalar_type(dtype: torch.dtype) -> bool:
    """Whether ExecuTorch has an element type for a torch dtype; complex128 has none."""
    return dtype in _SCALAR_TYPE


def scalar_type(dtype: torch.dtype) -> ScalarType:
    """Return the ExecuTorch element type of a torch dtype."""
    try:
        return _SCALAR_TYPE[dtype]
    except KeyError:
        raise StepwellError(
            f"dtype {dtype} has no ExecuTorch element type",
            help="convert the tensor to one of " + ", ".join(str(d) for d in _SCALAR_TYPE),
        ) from None
