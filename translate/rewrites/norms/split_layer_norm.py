"""Write layer normalisation as arithmetic, its scale and shift with constants.

    x̂ = c · rsqrt(Σc² + C·ε),  y = x̂ · (√C·γ) + β,  c = x − Σx/C

The mean of the squares needs no product of its own: √C is in the scale, which
`fold-affine-into-layer` takes into the layer that follows.

Before:
    %y = aten.layer_norm.default(%x, [4], eps=1.0e-06) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 0, 1, 1) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %1 = aten.sub.Tensor(%x, %0) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %2 = aten.sum.dim_IntList(%1, [1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %3 = aten.mul.Scalar(%2, 0.25) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %4 = aten.sub.Tensor(%1, %3) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %5 = aten.mul.Tensor(%4, %4) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %6 = aten.sum.dim_IntList(%5, [1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %7 = aten.add.Scalar(%6, 4.0e-06) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %8 = aten.rsqrt.default(%7) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %9 = aten.mul.Tensor(%4, %8) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %y = aten.mul.Scalar(%9, 2.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.affine.own_weights import are_from_weights
from stepwell.translate.rewrites.building import is_known, put, reduced
from stepwell.translate.rewrites.norms.row_statistics import less_first


@recipe("scaled_by")
def scaled_by(weight: torch.Tensor, *, factor: float) -> torch.Tensor:
    """A weight times a number, computed in f64."""
    return (weight.double() * factor).to(weight.dtype)


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm over the last axis, of `width` elements."""

    op: SchemaOp
    width: int


@dataclass(frozen=True)
class SplitLayerNorm(Rewrite[LayerNorm]):
    """`layer_norm` over the last axis to arithmetic."""

    name: ClassVar[str] = "split-layer-norm"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LayerNormDefault,)
    bound: ClassVar[Bound] = roundings("sums in another order, the scale regrouped")

    def match(self, op: SchemaOp, program: Program) -> LayerNorm | Refusal | None:
        """Guards: f32, one axis, constant scale and shift."""
        shape = dims(op.operands[0].type)
        if not is_known(shape) or not isinstance(shape[-1], int):
            return Refusal("the shape is symbolic")
        if element(op.operands[0].type) != f32:
            return Refusal("a sum of squares may overflow float16, and is too coarse in bfloat16")
        if len(op.arg("normalized_shape")) != 1:
            return Refusal("the layer norm runs over several axes")
        for name in ("weight", "bias"):
            value = op.operand(name)
            if value is not None and weight_key(value) is None:
                return Refusal(f"the {name} is computed at run time")
        return LayerNorm(op, shape[-1])

    def build(self, match: LayerNorm, rw: Rewriter) -> None:
        """Centre, square, sum, normalise, scale, shift."""
        op, width = match.op, match.width
        x = op.operands[0]
        last = len(dims(x.type)) - 1
        if not are_from_weights(x, [last]):
            x = less_first(rw, x)
        total = reduced(rw, aten.SumDimIntList, x, [last])
        centred = put(rw, aten.SubTensor, x, put(rw, aten.MulScalar, total, 1.0 / width))
        squares = put(rw, aten.MulTensor, centred, centred)
        squares = reduced(rw, aten.SumDimIntList, squares, [last])
        shifted = put(rw, aten.AddScalar, squares, width * float(op.arg("eps")))
        y = put(rw, aten.MulTensor, centred, put(rw, aten.RsqrtDefault, shifted))
        scale, shift = op.operand("weight"), op.operand("bias")
        root, key = math.sqrt(width), weight_key(scale) if scale is not None else None
        if key is None:
            y = put(rw, aten.MulScalar, y, root)
        else:
            scaled = rw.weight(rw.weights.derive("scaled_by", [key], factor=root))
            y = put(rw, aten.MulTensor, y, scaled)
        if shift is not None:
            y = put(rw, aten.AddTensor, y, shift)
        y.name_hint = op.results[0].name_hint
        rw.replace(op, [y])
