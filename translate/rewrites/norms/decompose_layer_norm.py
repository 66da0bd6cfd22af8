"""Write layer normalisation with what XNNPACK has: linear, subtract, square, rsqrt, multiply.

`native_layer_norm` stays outside every delegate in the stock flow: 25 of them cut DeiT-Tiny in
pieces. Scale and shift are separate ops here; `fold_affine_into_layer` takes them into the
linears that follow.

The first element of a row is taken from it before its mean: rows that are constant, as padding is,
are zero then as in torch, and not a rounding of their mean times 1/√eps. Rows across the outputs of
a layer are not constant, and are spared it: it costs a ConvNeXt 4 % of its time.

Before:
    %y = aten.layer_norm.default(%x, [4], eps=1.0e-06) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 0, 1, 1) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %1 = aten.sub.Tensor(%x, %0) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %2 = aten.linear.default(%1, dense<0.25>) : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x1xf32>
    %3 = aten.sub.Tensor(%1, %2) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    %4 = aten.mul.Tensor(%3, %3) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %5 = aten.linear.default(%4, dense<0.25>, dense<1.0e-06>) : (tensor<2x4xf32>, tensor<1x4xf32>, tensor<1xf32>) -> tensor<2x1xf32>
    %6 = aten.rsqrt.default(%5) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %y = aten.mul.Tensor(%3, %6) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import dtype_name, f16, f32
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.affine.own_weights import are_from_weights
from stepwell.translate.rewrites.building import overflows, put, static_dims, view
from stepwell.translate.rewrites.norms.row_statistics import (
    ROWS,
    less_first,
    normalise_rows,
    too_wide,
)


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm over the last `axes` axes, `width` elements together."""

    op: SchemaOp
    axes: int
    width: int


@dataclass(frozen=True)
class DecomposeLayerNorm(Rewrite[LayerNorm]):
    """`aten.layer_norm.default` to row statistics, with the affine part as ops of their own."""

    name: ClassVar[str] = "decompose-layer-norm"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LayerNormDefault,)
    bound: ClassVar[Bound] = ROWS
    deviation: ClassVar[Deviation | None] = REORDERED

    def match(self, op: SchemaOp, program: Program) -> LayerNorm | Refusal | None:
        """Guards: float elements, normalised sizes known."""
        held = element(op.operands[0].type)
        if held not in (f32, f16):
            return Refusal(f"XNNPACK computes in float32 or float16, not {dtype_name(held)}")
        if refusal := overflows(op.arg("eps"), held):
            return refusal
        sizes = op.arg("normalized_shape")
        if not all(isinstance(size, int) for size in sizes):
            return Refusal("a normalised axis has a symbolic size")
        width = 1
        for size in sizes:
            width *= size
        if width == 0:
            return Refusal("a normalised axis is empty")
        if len(sizes) > 1 and static_dims(op.operands[0]) is None:
            return Refusal("several axes are normalised and a batch axis is symbolic")
        return too_wide(width) or LayerNorm(op, len(sizes), width)

    def build(self, match: LayerNorm, rw: Rewriter) -> None:
        """Flatten the normalised axes, normalise rows, restore, scale and shift."""
        op = match.op
        value = op.operands[0]
        kept = value.type
        shape = dims(kept)
        if match.axes > 1:
            value = view(rw, value, [*shape[: -match.axes], match.width])
        if not are_from_weights(op.operands[0], range(len(shape) - match.axes, len(shape))):
            value = less_first(rw, value)
        value = normalise_rows(rw, value, op.arg("eps"), centred=False)
        if match.axes > 1:
            value = view(rw, value, shape)
        weight, bias = op.operand("weight"), op.operand("bias")
        rw.replace(op, [scale_and_shift(rw, value, weight, bias)])


def scale_and_shift(
    rw: Rewriter, value: SSAValue, weight: SSAValue | None, bias: SSAValue | None
) -> SSAValue:
    """`value * weight + bias`, broadcasting over leading axes."""
    if weight is not None:
        value = put(rw, aten.MulTensor, value, weight)
    return value if bias is None else put(rw, aten.AddTensor, value, bias)
