"""Convert values to single precision: constants at compile time, other values by a cast."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import cast
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_held

ONCE = roundings("a result next to the middle of two halves may round to either")


@recipe("single")
def single(constant: torch.Tensor) -> torch.Tensor:
    """Convert a constant to f32."""
    return constant.float()


def widened(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Convert a value to f32: a constant at compile time."""
    key = weight_key(value)
    if key is not None:
        return rw.weight(rw.weights.derive("single", [key]))
    return cast(rw, value, f32)


def not_halves(op: SchemaOp) -> bool:
    """Whether no operand or result is a tensor of halves that XNNPACK supports."""
    values = (*op.operands, *op.results)
    return any(
        not isinstance(value.type, TensorType)
        or element(value.type) != f16
        or not_held(value) is not None
        for value in values
    )


def is_layer_of_bfloats(op: Any) -> bool:
    """Whether an op is a linear layer of bfloat16 for which XNNPACK has a node: with constants."""
    constants = [op.operand("weight"), op.operand("bias")]
    return (
        isinstance(op, aten.LinearDefault)
        and all(element(value.type) == bf16 for value in op.operands)
        and all(value is None or weight_key(value) is not None for value in constants)
        and len(dims(op.operands[0].type)) > 1
        and len(dims(op.operands[1].type)) == 2
    )
