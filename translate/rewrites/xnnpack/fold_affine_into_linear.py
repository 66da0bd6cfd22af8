"""Take the scale and shift in front of a linear layer into its weight and bias.

    linear(x * g + b, W, c) = linear(x, W·diag(g), W·b + c)

A layer norm ends in such a pair, and XNNPACK would read g and b as constants that it does not
copy. Every reader of the pair must be a linear layer, or nothing is saved.

Before:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %g = stepwell.weight <"g"> "parameter" : tensor<4xf32>
      %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
      %s = aten.mul.Tensor(%x, %g) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
      %y = aten.linear.default(%s, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
      %0 = stepwell.weight <"w#scale_columns.d8f7dcdf5829"> "constant" : tensor<3x4xf32>
      %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
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
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import blocks_of_rows, recipe
from stepwell.translate.rewrites.aten.building import (
    constant_along_last_axis,
    constant_side,
    emit_as,
)


@recipe("scale_columns", "of the first")
def scale_columns(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`W · diag(g)`: each input feature of a linear weight `[out, in]` scaled."""
    return weight * scale.reshape(-1).expand(weight.shape[-1])


@recipe("shift_through_linear")
def shift_through_linear(
    weight: torch.Tensor, shift: torch.Tensor, *rest: torch.Tensor
) -> torch.Tensor:
    """`W·b + c`: what a shift of the input adds to the output; summed in f64."""
    given = shift.reshape(-1).expand(weight.shape[-1]).double()
    moved = torch.cat([weight[rows].double() @ given for rows in blocks_of_rows(weight)])
    for bias in rest:
        moved = moved + bias.double()
    return moved.to(weight.dtype)


@dataclass(frozen=True)
class AffineBeforeLinear:
    """A linear reading `source * scale + shift`; one of the two may be missing."""

    op: SchemaOp
    source: SSAValue
    weight: str
    bias: str | None
    scale: str | None
    shift: str | None


@dataclass(frozen=True)
class FoldAffineIntoLinear(Rewrite[AffineBeforeLinear]):
    """`linear(x * g + b)` to `linear(x)` with folded weights, if all readers are linears."""

    name: ClassVar[str] = "fold-affine-into-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "products with the folded weight, reassociated")

    def match(self, op: SchemaOp, program: Program) -> AffineBeforeLinear | Refusal | None:
        """Guards: constant operands along the last axis only, no reader but linears."""
        source = op.operands[0]
        shift = scale = None
        found = constant_side(source, aten.AddTensor, constant_along_last_axis)
        if found is not None:
            refusal = read_elsewhere(source)
            if refusal is not None:
                return refusal
            source, shift = found
        scaled = constant_side(source, aten.MulTensor, constant_along_last_axis)
        if scaled is not None:
            refusal = read_elsewhere(source) if shift is None else read_by_others(source)
            if refusal is not None and shift is None:
                return refusal
            if refusal is None:
                source, scale = scaled
        if shift is None and scale is None:
            return None
        weight = weight_key(op.operands[1])
        if weight is None:
            return Refusal("the linear's weight is computed at run time")
        if len(dims(op.operands[1].type)) != 2:
            return Refusal("the linear's weight is a vector: there is no bias to take the shift")
        bias = op.operand("bias")
        if bias is not None and weight_key(bias) is None:
            return Refusal("the linear's bias is computed at run time")
        return AffineBeforeLinear(
            op, source, weight, weight_key(bias) if bias else None, scale, shift
        )

    def deviates(self, match: AffineBeforeLinear, program: Program) -> Deviation | None:
        """Products and sums in another order."""
        return REORDERED

    def build(self, match: AffineBeforeLinear, rw: Rewriter) -> None:
        """Derive the weights; the scale and shift die with their last reader."""
        store = rw.weights
        bias = match.bias
        if match.shift is not None:
            sources = [match.weight, match.shift, *([bias] if bias else [])]
            bias = store.derive("shift_through_linear", sources)
        weight = match.weight
        if match.scale is not None:
            weight = store.derive("scale_columns", [weight, match.scale])
        result = match.op.results[0]
        new = aten.LinearDefault.make(
            match.source,
            rw.weight(weight),
            rw.weight(bias) if bias else None,
            result_types=[result.type],
        )
        rw.replace(match.op, [emit_as(rw, new, result)])


def read_elsewhere(value: SSAValue) -> Refusal | None:
    """Every reader of a value is a linear layer reading it as its input."""
    for use in value.uses:
        if not isinstance(use.operation, aten.LinearDefault) or use.index != 0:
            return Refusal(f"{use.operation.name} reads the scaled value too: nothing is saved")
    return None


def read_by_others(value: SSAValue) -> Refusal | None:
    """A value has one reader."""
    uses = list(value.uses)
    return None if len(uses) == 1 else Refusal("the scaled value has other readers")
