"""Take a constant factor behind a linear layer into its weight and bias.

    linear(x, W, c) * s = linear(x, s·W, s·c)

`s` is a number, or a constant along the output features. This is how an attention scale vanishes
into the query projection.

Before:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
      %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Scalar(%l, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %0 = stepwell.weight <"w#scale_by_number.581ad45230ae"> "constant" : tensor<3x4xf32>
      %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.aten.attention_pattern import constant_factor
from stepwell.translate.rewrites.aten.building import (
    constant_along_last_axis,
    emit_as,
    layer_of_floats,
)


@recipe("scale_by_number", "of the first")
def scale_by_number(tensor: torch.Tensor, *, factor: float) -> torch.Tensor:
    """A weight or bias times a number."""
    return tensor * factor


@recipe("scale_rows")
def scale_rows(tensor: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Each output feature of a weight `[out, …]` or bias `[out]` times its factor."""
    rows = scale.reshape(-1).expand(tensor.shape[0])
    return tensor * rows.reshape(-1, *([1] * (tensor.dim() - 1)))


@dataclass(frozen=True)
class ScaledLinear:
    """A multiplication of a linear's only use, by a number or by a weight's key."""

    op: SchemaOp
    linear: SchemaOp
    weight: str
    bias: str | None
    factor: float | str


@dataclass(frozen=True)
class FoldScaleIntoLinear(Rewrite[ScaledLinear]):
    """`linear(x) * s` to a linear with scaled weights."""

    name: ClassVar[str] = "fold-scale-into-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar, aten.MulTensor)
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "the factor is applied before the sum")

    def match(self, op: SchemaOp, program: Program) -> ScaledLinear | Refusal | None:
        """Guards: constant finite factor along the last axis, constant weights, one reader."""
        found = factor_of(op)
        if found is None:
            return None
        value, factor = found
        linear = layer_of_floats(value)
        if linear is None:
            return None
        if len(list(value.uses)) != 1:
            return Refusal("the linear is read without the factor too")
        weight, bias = weight_key(linear.operands[1]), linear.operand("bias")
        if weight is None or (bias is not None and weight_key(bias) is None):
            return Refusal("the linear's weights are computed at run time")
        if refusal := makes_weights_infinite(factor, linear.operands[1].type, program):
            return refusal
        return ScaledLinear(op, linear, weight, weight_key(bias) if bias else None, factor)

    def deviates(self, match: ScaledLinear, program: Program) -> Deviation | None:
        """Products that grow by the factor may overflow before they cancel."""
        return grows(match.factor, program)

    def build(self, match: ScaledLinear, rw: Rewriter) -> None:
        """Derive scaled weights; the unscaled ones go if nothing else reads them."""

        def scaled(key: str) -> SSAValue:
            if isinstance(match.factor, str):
                return rw.weight(rw.weights.derive("scale_rows", [key, match.factor]))
            return rw.weight(rw.weights.derive("scale_by_number", [key], factor=match.factor))

        result = match.op.results[0]
        new = aten.LinearDefault.make(
            match.linear.operands[0],
            scaled(match.weight),
            scaled(match.bias) if match.bias else None,
            result_types=[result.type],
        )
        rw.replace(match.op, [emit_as(rw, new, result)])


def makes_weights_infinite(
    factor: float | str, type_: Attribute, program: Program
) -> Refusal | None:
    """A factor, a number or a weight's key, is finite in a tensor's element type.

    Infinity times a layer's sum is infinity; times each of its weights it gives ∞ − ∞.
    """
    if isinstance(factor, str):
        is_finite = bool(program.weights.get(factor).isfinite().all())
    else:
        is_finite = abs(factor) <= torch.finfo(torch_dtype(element(type_))).max
    return None if is_finite else Refusal("the factor is not finite, and its products would be NaN")


def grows(factor: float | str, program: Program) -> Deviation | None:
    """What a factor of more than one does to sums of products that it is folded into.

    One of at most one makes them smaller: where the sum without it overflows they are right.
    """
    if isinstance(factor, str):
        largest = float(program.weights.get(factor).abs().max())
    else:
        largest = abs(factor)
    if largest <= 1.0:
        return REORDERED
    return Deviation("sums that grow by the factor may overflow before they cancel")


def factor_of(op: SchemaOp) -> tuple[SSAValue, float | str] | None:
    """(tensor, number or key of a constant along the last axis) of a multiplication."""
    if isinstance(op, aten.MulTensor):
        return constant_along_last_axis(op)
    factor = constant_factor(op)
    return None if factor is None else (op.operands[0], factor)
