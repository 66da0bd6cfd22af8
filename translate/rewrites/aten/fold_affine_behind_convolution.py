"""Take a constant factor or addend behind a convolution into its weight and bias.

    convolution(x, W, c) * s + b = convolution(x, s·W, s·c + b)

The constant is a number, or one for each channel: layer scales, the gains of nets without norms.

Before:
    func.func @forward(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x5x5xf32> {
      %s = stepwell.weight <"s"> "parameter" : tensor<4x1x1xf32>
      %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
      %c = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
      %y = aten.mul.Tensor(%c, %s) : (tensor<1x4x5x5xf32>, tensor<4x1x1xf32>) -> tensor<1x4x5x5xf32>
      func.return %y : tensor<1x4x5x5xf32>
    }
After:
    func.func @forward(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x5x5xf32> {
      %0 = stepwell.weight <"w#scale_rows.c7a8571f8423"> "constant" : tensor<4x3x1x1xf32>
      %y = aten.convolution.default(%x, %0, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
      func.return %y : tensor<1x4x5x5xf32>
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
from stepwell.ir.dtypes import is_float, torch_dtype
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.aten.building import (
    constant_along_channels,
    emit_as,
    overflows,
)
from stepwell.translate.rewrites.aten.fold_bias_into_linear import constant_addend
from stepwell.translate.rewrites.aten.fold_scale_into_linear import (
    factor_of,
    grows,
    makes_weights_infinite,
)


@dataclass(frozen=True)
class AffineBehindConvolution:
    """A product with, or a sum of, a convolution and a constant: a key or a number."""

    op: SchemaOp
    layer: SchemaOp
    constant: str | float


@dataclass(frozen=True)
class FoldAffineBehindConvolution(Rewrite[AffineBehindConvolution]):
    """`convolution(x) * s` and `convolution(x) + b` to a convolution with folded weights."""

    name: ClassVar[str] = "fold-affine-behind-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MulScalar,
        aten.MulTensor,
        aten.AddScalar,
        aten.AddTensor,
    )
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "the factor is applied before the sum")

    def match(self, op: SchemaOp, program: Program) -> AffineBehindConvolution | Refusal | None:
        """Guards: a constant along the channels, constant weights, no other reader, finite."""
        found = constant_of(op)
        if found is None:
            return None
        value, constant = found
        layer = value.owner
        if not isinstance(layer, aten.ConvolutionDefault) or not is_float(element(value.type)):
            return None
        if layer.arg("transposed"):
            return Refusal("the convolution is transposed")
        if not value.has_one_use():
            return Refusal("the convolution is read without the constant too")
        bias = layer.operand("bias")
        if weight_key(layer.operands[1]) is None:
            return Refusal("the convolution's weight is computed at run time")
        if bias is not None and weight_key(bias) is None:
            return Refusal("the convolution's bias is computed at run time")
        if isinstance(op, aten.MulScalar | aten.MulTensor):
            refusal = makes_weights_infinite(constant, value.type, program)
        else:
            is_number = not isinstance(constant, str)
            refusal = overflows(constant, element(value.type)) if is_number else None
        if refusal is not None:
            return refusal
        return AffineBehindConvolution(op, layer, constant)

    def deviates(self, match: AffineBehindConvolution, program: Program) -> Deviation | None:
        """Products that grow by the factor may overflow before they cancel."""
        is_factor = isinstance(match.op, aten.MulScalar | aten.MulTensor)
        return grows(match.constant, program) if is_factor else None

    def build(self, match: AffineBehindConvolution, rw: Rewriter) -> None:
        """Derive the weights."""
        layer, result = match.layer, match.op.results[0]
        arguments, store = layer.present(), rw.weights
        weight, bias = weight_key(layer.operands[1]), layer.operand("bias")
        held = weight_key(bias) if bias is not None else None
        assert weight is not None
        if isinstance(match.op, aten.MulScalar | aten.MulTensor):
            arguments["weight"] = rw.weight(scaled(store, weight, match.constant))
            if held is not None:
                arguments["bias"] = rw.weight(scaled(store, held, match.constant))
        else:
            channels = dims(result.type)[1]
            key = constant_key(store, match.constant, result)
            arguments["bias"] = rw.weight(
                store.derive("as_bias", [key], features=channels)
                if held is None
                else store.derive("add_bias", [held, key])
            )
        new = aten.ConvolutionDefault.from_arguments(arguments, [result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])


def scaled(store: WeightStore, key: str, factor: str | float) -> str:
    """A weight or bias with every output channel times its factor."""
    if isinstance(factor, str):
        return store.derive("scale_rows", [key, factor])
    return store.derive("scale_by_number", [key], factor=factor)


def constant_key(store: WeightStore, constant: str | float, like: SSAValue) -> str:
    """A constant's key; a number becomes one."""
    if isinstance(constant, str):
        return constant
    dtype = torch_dtype(element(like.type))
    return store.constant(torch.full((1,), constant, dtype=dtype), "scalar")


def constant_of(op: SchemaOp) -> tuple[SSAValue, str | float] | None:
    """(tensor, number or key of a constant along the channels) of a product or sum."""
    if isinstance(op, aten.MulTensor):
        return constant_along_channels(op)
    if isinstance(op, aten.MulScalar):
        return factor_of(op)
    if isinstance(op, aten.AddScalar):
        return constant_addend(op)
    return constant_along_channels(op) if op.arg("alpha") == 1 else None
