"""The operator libraries that PT2E graphs draw on, known before any graph is seen."""

from __future__ import annotations

from typing import cast

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import define, defined_ops, op_class
from stepwell.dialects.aten.schema import parse_schema

TORCHAO = (
    "torchao::quantize_affine(Tensor input, SymInt[] block_size, Tensor scale, "
    "Tensor? zero_point, ScalarType output_dtype, Scalar? quant_min=None, "
    "Scalar? quant_max=None) -> Tensor",
    "torchao::dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, "
    "Tensor? zero_point, ScalarType input_dtype, Scalar? quant_min=None, "
    "Scalar? quant_max=None, ScalarType output_dtype=float) -> Tensor",
)
"""Declared here so that torchao, which takes seconds to import, is not needed to read a graph."""


def quantization_op(name: str) -> type[SchemaOp]:
    """The class of a quantise or dequantise op of either library."""
    for text in TORCHAO:
        if parse_schema(text).op_name == name:
            known = {cls.name: cls for cls in defined_ops()}.get(name)
            return cast("type[SchemaOp]", known) if known is not None else define(text)
    return op_class(name)
