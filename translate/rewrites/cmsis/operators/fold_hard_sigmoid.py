"""A hard sigmoid behind a layer is the layer over six and a half more, clamped.

hardsigmoid(y) = clamp(y/6 + 1/2, 0, 1): the scales of the weight are divided, the bias is moved, and
the clamp goes into the kernel's range. ExecuTorch's quantizer leaves a squeeze-excite block so, with
one quantisation behind both.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x3x3xi8>
    %wt = quant.scast %w : tensor<3x2x3x3xi8> to tensor<3x2x3x3x!quant.uniform<i8:f32, 0.75>>
    %xr = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %wr = quant.dcast %wt : tensor<3x2x3x3x!quant.uniform<i8:f32, 0.75>> to tensor<3x2x3x3xf32>
    %y = aten.conv2d.default(%xr, %wr) : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x2x2xf32>
    %h = aten.hardsigmoid.default(%y) : (tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32>
    %q = quant.qcast %h : tensor<1x3x2x2xf32> to tensor<1x3x2x2x!quant.uniform<i8:f32, 0.00390625:-128>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x3x3xi8>
    %xr = quant.dcast %x : tensor<1x2x4x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<1x2x4x4xf32>
    %wt = quant.scast %w : tensor<3x2x3x3xi8> to tensor<3x2x3x3x!quant.uniform<i8:f32, 0.125>>
    %wr = quant.dcast %wt : tensor<3x2x3x3x!quant.uniform<i8:f32, 0.125>> to tensor<3x2x3x3xf32>
    %y = aten.conv2d.default(%xr, %wr, dense<0.5>) : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>, tensor<3xf32>) -> tensor<1x3x2x2xf32>
    %h = aten.clamp.default(%y, 0.0, 1.0) : (tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32>
    %q = quant.qcast %h : tensor<1x3x2x2xf32> to tensor<1x3x2x2x!quant.uniform<i8:f32, 0.00390625:-128>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.size import number_of
from stepwell.ir.types import dims, tensor
from stepwell.translate.quantised.recognise import (
    Bias,
    StoredWeight,
    activation,
    bias_operand,
    quantized_uses,
    stored_weight,
    typed_weight,
)

LAYERS = (
    aten.LinearDefault,
    aten.Conv1dDefault,
    aten.Conv2dDefault,
    aten.ConvolutionDefault,
)
"""Layers whose outputs are the rows of their weight."""


@dataclass(frozen=True)
class GatedLayer:
    """`op` is the hard sigmoid of a quantised layer alone."""

    op: SchemaOp
    layer: SchemaOp
    weight: StoredWeight
    bias: Bias | None


@dataclass(frozen=True)
class FoldHardSigmoid(Rewrite[GatedLayer]):
    """`hardsigmoid(layer(x, w, b))` to `clamp(layer(x, w/6, b/6 + 1/2), 0, 1)`."""

    name: ClassVar[str] = "fold-hard-sigmoid"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.HardsigmoidDefault,)
    bound: ClassVar[Bound] = Bound(
        absolute=1e-6, relative=1e-6, reason="the sixth is taken of scales, not of sums"
    )

    def match(self, op: SchemaOp, program: Program) -> GatedLayer | Refusal | None:
        """A layer that becomes integers but for the hard sigmoid, which alone reads it."""
        layer = op.operands[0].owner
        if not isinstance(layer, LAYERS) or not layer.results[0].has_one_use():
            return None
        if isinstance(layer, aten.ConvolutionDefault) and layer.arg("transposed"):
            return Refusal("a transposed convolution's outputs are no rows of its weight")
        found = activation(layer.operands[0])
        weight, bias = stored_weight(layer.operand("weight")), bias_operand(layer.operand("bias"))
        uses = quantized_uses(op.results[0])
        for part in (found, weight, bias, uses):
            if isinstance(part, Refusal):
                return part
        assert isinstance(weight, StoredWeight) and not isinstance(bias, Refusal)
        return GatedLayer(op, layer, weight, bias)

    def build(self, match: GatedLayer, rw: Rewriter) -> None:
        """The layer with scales of a sixth, and a bias of reals."""
        key, held = match.weight.key, match.weight.held
        shape = dims(rw.weights.type_of(key))
        sixth = replace(held, scales=[scale / 6 for scale in held.scales])
        typed = typed_weight(rw, key, tensor(shape, UniformQuantizedType(sixth)))
        made: dict[str, object] = dict(match.layer.present())
        made["weight"] = rw.insert(
            DequantizeCast(typed, match.layer.operand("weight").type)  # pyright: ignore
        ).results[0]
        made["bias"] = rw.constant(_moved(match.bias, number_of(shape[0]), rw.program), "half")
        types = [match.layer.results[0].type]
        layer = rw.insert(type(match.layer).make(**made, result_types=types))
        layer.location = match.layer.location
        clamp = aten.ClampDefault.make(layer.results[0], 0.0, 1.0, result_types=types)
        rw.replace(match.op, [rw.insert(clamp).results[0]])


def _moved(bias: Bias | None, channels: int, program: Program) -> torch.Tensor:
    """`b/6 + 1/2` as float32."""
    if bias is None:
        return torch.full((channels,), 0.5)
    real = program.weights.get(bias.key).double()
    if bias.unit is not None:
        real = real * torch.tensor(bias.unit, dtype=torch.float64)
    return (real / 6 + 0.5).float()
