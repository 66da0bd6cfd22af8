"""The `quant` dialect: upstream MLIR's quantized types and the casts in and out of them."""

from stepwell.dialects.quant.ops import DequantizeCast, Quant, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import (
    Quantization,
    UniformQuantizedType,
    per_axis,
    per_tensor,
    quantization,
)

__all__ = [
    "DequantizeCast",
    "Quant",
    "Quantization",
    "QuantizeCast",
    "StorageCast",
    "UniformQuantizedType",
    "per_axis",
    "per_tensor",
    "quantization",
]
