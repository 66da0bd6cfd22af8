"""Fusion: fold a constant factor or addend of each output channel into the layer's weights.

    layer(x, W, c) * s = layer(x, s·W, s·c)
    layer(x, W, c) + b = layer(x, W, c + b)

The constant is a number, or a tensor along the output features. An attention scale is folded into
the query projection in this way. A tensor computed at run time is a residual and is not folded.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = aten.mul.Scalar(%l, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %0 = stepwell.weight <"w#scale_by_number.581ad45230ae"> "constant" : tensor<3x4xf32>
    %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>

Before:
    %s = stepwell.weight <"s"> "parameter" : tensor<4x1x1xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %c = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
    %y = aten.mul.Tensor(%c, %s) : (tensor<1x4x5x5xf32>, tensor<4x1x1xf32>) -> tensor<1x4x5x5xf32>
After:
    %0 = stepwell.weight <"w#scale_rows.c7a8571f8423"> "constant" : tensor<4x3x1x1xf32>
    %y = aten.convolution.default(%x, %0, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = aten.add.Tensor(%l, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
    %y = aten.linear.default(%x, %w, %b) : (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.attention.attention_pattern import constant_factor
from stepwell.translate.rewrites.building import overflows
from stepwell.translate.scale_folding.constants import constant_along
from stepwell.translate.scale_folding.layers import (
    LAYERS,
    Layers,
    bias_of,
    key_of,
    layer_of,
    with_weights,
)
from stepwell.translate.scale_folding.recipes import add_bias, as_bias, scale_by_number, scale_rows

Constant = str | float
"""A weight's key, or a number."""


@dataclass(frozen=True)
class ConstantBehind:
    """`op` multiplies or adds a constant to a layer's result that no other op reads."""

    op: SchemaOp
    layer: SchemaOp
    constant: Constant


@dataclass(frozen=True)
class FoldScaleIntoLayer(Rewrite[ConstantBehind]):
    """`layer(x) * s` to a layer with scaled weights."""

    name: ClassVar[str] = "fold-scale-into-layer"
    formerly: ClassVar[tuple[str, ...]] = ("fold-scale-into-linear",)
    LAYERS: ClassVar[Layers] = LAYERS
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar, aten.MulTensor)
    bound: ClassVar[Bound] = roundings("the factor is applied before the sum")

    def match(self, op: SchemaOp, program: Program) -> ConstantBehind | Refusal | None:
        """Guards: a finite factor along the channels, constant weights, one reader."""
        constant = constant_behind(op, self.LAYERS, "factor")
        if not isinstance(constant, ConstantBehind):
            return constant
        layer = constant.layer
        refusal = self.LAYERS[type(layer)].runs_on(layer, bias=True)
        if refusal is None:
            refusal = makes_weights_infinite(constant.constant, layer.operands[1].type, program)
        return refusal or constant

    def deviates(self, match: ConstantBehind, program: Program) -> Deviation | None:
        """Products that grow by the factor may overflow before they cancel."""
        return grows(match.constant, program)

    def build(self, match: ConstantBehind, rw: Rewriter) -> None:
        """Derive scaled weights; the unscaled ones are removed if nothing else reads them."""
        layer, factor = match.layer, match.constant
        keys = [key_of(layer, "weight"), *bias_of(layer)]
        weight, *bias = (scaled(rw.weights, key, factor) for key in keys)
        replace(rw, match, weight, bias[0] if bias else None)


@dataclass(frozen=True)
class FoldBiasIntoLayer(Rewrite[ConstantBehind]):
    """`layer(x, W, c) + b` to `layer(x, W, c + b)`."""

    name: ClassVar[str] = "fold-bias-into-layer"
    formerly: ClassVar[tuple[str, ...]] = ("fold-bias-into-linear",)
    LAYERS: ClassVar[Layers] = LAYERS
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddTensor, aten.AddScalar)
    bound: ClassVar[Bound] = roundings("two biases added first")

    def match(self, op: SchemaOp, program: Program) -> ConstantBehind | Refusal | None:
        """Guards: constant along the channels, one reader, constant bias so far, no overflow."""
        constant = None if op.arg("alpha") != 1 else constant_behind(op, self.LAYERS, "constant")
        if not isinstance(constant, ConstantBehind):
            return constant
        layer = constant.layer
        refusal = self.LAYERS[type(layer)].runs_on(layer, bias=True, weight=False)
        if refusal is None and not isinstance(constant.constant, str):
            refusal = overflows(constant.constant, element(layer.operands[1].type))
        return refusal or constant

    def build(self, match: ConstantBehind, rw: Rewriter) -> None:
        """Derive the bias."""
        layer, store = match.layer, rw.weights
        weight, key = layer.operands[1].type, match.constant
        features = dims(weight)[0]
        if not isinstance(key, str):
            number = torch.full((1,), key, dtype=torch_dtype(element(weight)))
            key = store.constant(number, "scalar")
        for bias in bias_of(layer):
            key = store.derive(add_bias.__name__, [bias, key])
        if dims(store.type_of(key)) != (features,):
            key = store.derive(as_bias.__name__, [key], features=features)
        replace(rw, match, None, key)


def replace(rw: Rewriter, match: ConstantBehind, weight: str | None, bias: str | None) -> None:
    """Build the layer with other weights, in the place of the product or sum."""
    new = with_weights(rw, match.layer, match.layer.operands[0], weight, bias)
    new.results[0].name_hint = match.op.results[0].name_hint
    rw.replace(match.op, rw.insert(new).results)


def constant_behind(op: SchemaOp, layers: Layers, called: str) -> ConstantBehind | Refusal | None:
    """Match a product or sum of a float layer and a constant along its output features."""
    for value in op.operands:
        owner_layer = layer_of(value.owner, layers)
        axis = None if owner_layer is None else owner_layer[1].channels_made(owner_layer[0])
        constant = None if axis is None else constant_of(op, value, axis)
        if owner_layer is None or constant is None:
            continue
        layer, kind = owner_layer
        if (refusal := kind.refuses_output(layer)) is not None:
            return refusal
        if not value.has_one_use():
            return Refusal(f"the {kind.WORD} is read without the {called} too")
        return ConstantBehind(op, layer, constant)
    return None


def constant_of(op: SchemaOp, value: SSAValue, axis: int) -> Constant | None:
    """Return the number, or the key of the constant along an axis, that is the other operand."""
    if isinstance(op, aten.MulTensor | aten.AddTensor):
        found = constant_along(op, axis)
        return found[1] if found is not None and found[0] is value else None
    if isinstance(op, aten.MulScalar):
        return constant_factor(op)
    number = op.arg("other")
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return float(number) if plain and value.type == op.results[0].type else None


def scaled(store: WeightStore, key: str, factor: Constant) -> str:
    """Return a weight or bias with every output channel multiplied by its factor."""
    if isinstance(factor, str):
        return store.derive(scale_rows.__name__, [key, factor])
    return store.derive(scale_by_number.__name__, [key], factor=factor)


def makes_weights_infinite(factor: Constant, type_: Attribute, program: Program) -> Refusal | None:
    """The factor is finite in a tensor's element type.

    Infinity times a layer's sum is infinity. Infinity times each of its weights gives ∞ − ∞.
    """
    if isinstance(factor, str):
        is_finite = bool(program.weights.get(factor).isfinite().all())
    else:
        is_finite = abs(factor) <= torch.finfo(torch_dtype(element(type_))).max
    return None if is_finite else Refusal("the factor is not finite, and its products would be NaN")


def grows(factor: Constant, program: Program) -> Deviation | None:
    """Return the deviation of folding a factor greater than one into sums of products.

    A factor of at most one makes the products smaller: they are right even where the unscaled sum
    overflows.
    """
    if isinstance(factor, str):
        largest = float(program.weights.get(factor).abs().max())
    else:
        largest = abs(factor)
    if largest <= 1.0:
        return REORDERED
    return Deviation("sums that grow by the factor may overflow before they cancel")
