"""Fusion: fold a constant factor or addend of each output channel into the layer's weights.

    layer(x, W, c) * s = layer(x, s·W, s·c)
    layer(x, W, c) + b = layer(x, W, c + b)

The constant is a number, or a tensor along the output features. An attention scale is folded into
the query projection in this way. A tensor computed at run time is a residual and is not folded.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import sums_are_finite
from stepwell.translate.rewrites.attention.attention_pattern import constant_factor
from stepwell.translate.rewrites.building import overflows
from stepwell.translate.scale_folding.constants import constant_along
from stepwell.translate.scale_folding.layers import (
    LAYERS,
    bias_of,
    key_of,
    layer_of,
    with_weights,
)
from stepwell.translate.scale_folding.recipes import add_bias, as_bias, scale_by_number, scale_rows

Constant = str | float
"""A weight's key, or a number."""


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of scaled weights: products that grow by the factor may overflow."""
    found = constant_after(op, "factor")
    assert found is not None, "it is a match"
    return grows(*found, program)


@lowers(
    "aten.mul.Scalar",
    "aten.mul.Tensor",
    to="aten",
    bound=roundings("the factor is applied before the sum"),
    deviation=_loses,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = aten.mul.Scalar(%l, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>

    %s = stepwell.weight <"s"> "parameter" : tensor<4x1x1xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %c = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
    %y = aten.mul.Tensor(%c, %s) : (tensor<1x4x5x5xf32>, tensor<4x1x1xf32>) -> tensor<1x4x5x5xf32>
    """,
)
def fold_scale_into_layer(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write `layer(x) * s` as a layer with scaled weights."""
    found = constant_after(op, "factor")
    if found is None:
        return None
    layer, factor = found
    no_refusal(LAYERS[type(layer)].runs_on(layer, bias=True))
    no_refusal(makes_weights_infinite(factor, layer.operands[1].type, b.program))
    keys = [key_of(layer, "weight"), *bias_of(layer)]
    weight, *bias = (scaled(b.weights, key, factor) for key in keys)
    return _with(layer, weight, bias[0] if bias else None, b)


@lowers(
    "aten.add.Tensor",
    "aten.add.Scalar",
    to="aten",
    bound=roundings("two biases added first"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3xf32>
    %l = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = aten.add.Tensor(%l, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    """,
)
def fold_bias_into_layer(*, op: SchemaOp, b: Rewriter) -> Value | None:
    """Write `layer(x, W, c) + b` as `layer(x, W, c + b)`."""
    found = None if op.arg("alpha") != 1 else constant_after(op, "constant")
    if found is None:
        return None
    (layer, key), store = found, b.weights
    no_refusal(LAYERS[type(layer)].runs_on(layer, bias=True, weight=False))
    weight = layer.operands[1].type
    if not isinstance(key, str):
        no_refusal(overflows(key, element(weight)))
        number = torch.full((1,), key, dtype=torch_dtype(element(weight)))
        key = store.constant(number, "scalar")
    for bias in bias_of(layer):
        key = store.derive(add_bias.__name__, [bias, key])
    features = dims(weight)[0]
    if dims(store.type_of(key)) != (features,):
        key = store.derive(as_bias.__name__, [key], features=features)
    return _with(layer, None, key, b)


def _with(layer: SchemaOp, weight: str | None, bias: str | None, b: Rewriter) -> Value:
    """Return a layer's result computed with other weights."""
    new = with_weights(b, layer, layer.operands[0], weight, bias)
    return Value(b.insert(new).results[0], b)


def constant_after(op: SchemaOp, called: str) -> tuple[SchemaOp, Constant] | None:
    """Return the float layer and the constant, along its output features, of a product or sum.

    A layer result that another op also reads is refused.
    """
    for value in op.operands:
        found = layer_of(value.owner)
        axis = None if found is None else found[1].channels_made(found[0])
        constant = None if axis is None else constant_of(op, value, axis)
        if found is None or constant is None:
            continue
        layer, kind = found
        no_refusal(kind.refuses_output(layer))
        if not value.has_one_use():
            refuse(f"the result of the {kind.WORD} is also used without the {called}")
        return layer, constant
    return None


def constant_of(op: SchemaOp, value: SSAValue, axis: int) -> Constant | None:
    """Return the other operand, if it is a number or a constant along an axis."""
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
    """Refuse a factor that is infinite in the tensor's element type.

    Infinity times a layer's sum is infinity. Infinity times each of its weights gives ∞ − ∞.
    """
    if isinstance(factor, str):
        is_finite = bool(program.weights.get(factor).isfinite().all())
    else:
        is_finite = abs(factor) <= torch.finfo(torch_dtype(element(type_))).max
    return None if is_finite else Refusal("the factor is not finite, and its products would be NaN")


def grows(layer: SchemaOp, factor: Constant, program: Program) -> Deviation | None:
    """Return the deviation of folding a factor greater than one into a layer's sums of products.

    A factor of at most one makes the products smaller: they are right even where the unscaled sum
    overflows.
    """
    if isinstance(factor, str):
        largest = float(program.weights.get(factor).abs().max())
    else:
        largest = abs(factor)
    if largest <= 1.0:
        return REORDERED
    lost = Deviation("sums that grow by the factor may overflow before they cancel")
    return lost.unless(sums_are_finite(layer, largest, program))


RULES = lowerings_of(__name__)
