"""Take a constant added behind a linear layer into its bias.

Only a constant along the output features is a bias; a tensor computed at run time is a residual
and stays.

Before:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
      %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
      %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
      %y = aten.add.Tensor(%l, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
      %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
      %y = aten.linear.default(%x, %w, %b) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.aten.building import (
    constant_along_last_axis,
    emit_as,
    layer_of_floats,
    overflows,
)


@recipe("add_bias")
def add_bias(bias: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """The sum of a bias `[out]` and a constant that broadcasts along the output features."""
    return bias + more.reshape(-1).expand(bias.shape[0])


@recipe("as_bias")
def as_bias(constant: torch.Tensor, *, features: int) -> torch.Tensor:
    """A constant that broadcasts along the output features as a bias `[features]`."""
    return constant.reshape(-1).expand(features).contiguous()


@dataclass(frozen=True)
class BiasBehindLinear:
    """`linear + constant`; the constant is a key or a number."""

    op: SchemaOp
    linear: SchemaOp
    constant: str | float


@dataclass(frozen=True)
class FoldBiasIntoLinear(Rewrite[BiasBehindLinear]):
    """`linear(x, W, c) + b` to `linear(x, W, c + b)`."""

    name: ClassVar[str] = "fold-bias-into-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddTensor, aten.AddScalar)
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "two biases added first")

    def match(self, op: SchemaOp, program: Program) -> BiasBehindLinear | Refusal | None:
        """Guards: constant along the last axis, one reader, constant bias so far, no overflow."""
        found = constant_addend(op)
        if found is None:
            return None
        value, constant = found
        linear = layer_of_floats(value)
        if linear is None:
            return None
        if len(list(value.uses)) != 1:
            return Refusal("the linear is read without the constant too")
        bias = linear.operand("bias")
        if bias is not None and weight_key(bias) is None:
            return Refusal("the linear's bias is computed at run time")
        if not isinstance(constant, str):
            refusal = overflows(constant, element(linear.operands[1].type))
            if refusal is not None:
                return refusal
        return BiasBehindLinear(op, linear, constant)

    def build(self, match: BiasBehindLinear, rw: Rewriter) -> None:
        """Derive the bias."""
        linear, store = match.linear, rw.weights
        features = dims(linear.operands[1].type)[0]
        key = match.constant
        if not isinstance(key, str):
            dtype = torch_dtype(element(linear.operands[1].type))
            key = store.constant(torch.full((1,), key, dtype=dtype), "scalar")
        bias = linear.operand("bias")
        held = weight_key(bias) if bias is not None else None
        if held is not None:
            key = store.derive("add_bias", [held, key])
        elif dims(store.type_of(key)) != (features,):
            key = store.derive("as_bias", [key], features=features)
        result = match.op.results[0]
        new = aten.LinearDefault.make(
            linear.operands[0], linear.operands[1], rw.weight(key), result_types=[result.type]
        )
        rw.replace(match.op, [emit_as(rw, new, result)])


def constant_addend(op: SchemaOp) -> tuple[SSAValue, str | float] | None:
    """(tensor, key or number) of an addition of a constant along the last axis."""
    if op.arg("alpha") != 1:
        return None
    if isinstance(op, aten.AddTensor):
        return constant_along_last_axis(op)
    number = op.arg("other")
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    keeps_type = op.operands[0].type == op.results[0].type
    return (op.operands[0], float(number)) if plain and keeps_type else None
