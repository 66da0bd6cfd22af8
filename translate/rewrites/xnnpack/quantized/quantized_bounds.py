"""Error bounds of int8 kernels against the float form of the same layer: derived, not chosen.

With u = 2⁻²⁴, a float32 sum of K products differs from the exact sum by at most γ(K)·Σ|xᵢwᵢ|, in
whatever order it is taken, where γ(K) = K·u / (1 − K·u) (Higham, Accuracy and Stability of
Numerical Algorithms, §3.1). Rounding both operands, the bias, the scale and the result adds a few
steps to K.
"""

from __future__ import annotations

import math
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import Quantization, quantization
from stepwell.dialects.xnnpack.meaning.arithmetic import DynamicTensor
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.dtypes import f16
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Value
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore

ROUNDED_ONCE = Bound(units=1, reason="both round one real number, by other float steps")
"""Roundings of two reals that are less than a unit apart differ by one unit at most."""

_UNIT_ROUNDOFF = 2.0**-24
_BFLOAT16 = 2.0**-8
"""The relative error of rounding to eight significant bits."""
_HALF = 2.0**-11
"""The relative error of rounding to a half."""
_FEW = 8
"""Roundings of one product in addition to its sum: operands, bias, scales, result."""
_ZERO_POINT_SLACK = 2.0**-12
"""A zero point is computed in float32 among 255 steps: its error is less than 2⁻¹² of one."""
_HALF_SLACK = 255 * 2.0**-10
"""The range of halves and its 255th part are rounded to halves: a quarter of a step at its ends."""


def growth(terms: int) -> float:
    """Return γ(terms + a few), the relative error of a sum of `terms` products."""
    steps = (terms + _FEW) * _UNIT_ROUNDOFF
    return steps / (1.0 - steps)


def terms(op: SchemaOp) -> int:
    """Return the number of products that each result of a linear layer or convolution sums."""
    shape = cast(tuple[int, ...], dims(op.operands[1].type))
    is_transposed = "transposed" in op.SCHEMA.by_name and op.arg("transposed")
    return math.prod(shape) // shape[1 if is_transposed else 0]


def magnitude(op: SchemaOp, value: Value) -> float:
    """Return the largest Σ|xᵢwᵢ| + |b| over a layer's results, for given operands."""
    rule = rule_for(type(op))
    assert rule is not None
    absolute = [value(operand).abs() for operand in op.operands]
    (sums,) = rule(op, absolute, Interpreter(WeightStore()))
    return float(sums.max()) if sums.numel() else 0.0


def static_layer(op: SchemaOp, products: float, made: SSAValue, value: Value) -> Bound:
    """Bound the difference, in integer units, of q(layer(dq(x), dq(w), b)) and the kernel that sums
    integers.

    The kernel's bias is rounded to a whole number of products (half a product's step); the rest of
    the distance is the float rounding of both forms. If the distance is d units before the last
    rounding, the integers differ by ⌊d⌋ + 1 at most.

    Args:
        op: the layer, with a dequantized input and weight.
        products: the largest step of a product, input scale times weight scale.
        made: the quantized result.
        value: the operands' values.
    """
    held = quantization(made.type)
    assert held is not None
    bias = 0.5 * products if op.operand("bias") is not None else 0.0
    distance = (bias + 2.0 * growth(terms(op)) * magnitude(op, value)) / held.scale
    return Bound(units=math.floor(distance) + 1, reason=STATIC_LAYER.reason)


STATIC_LAYER = Bound(
    units=1,
    reason="integers summed and rounded once, the bias in steps of a product; more where a "
    "product's step exceeds the result's",
)


def stored_layer(op: SchemaOp, step: float, value: Value, scales_rounded: bool = False) -> Bound:
    """Bound the difference of layer(x̂, dq(w), b) and a kernel that quantizes each token, as real
    numbers.

    The first quantizes an element to within half a step of the tensor, the second of the token. A
    token's range is within the tensor's, so its step is no greater: inputs differ by one `step` at
    most, and results by that times Σ|w|. With `step` 0 (float inputs) only the sums differ. Scales
    of groups rounded to bfloat16 move each product by a further part of itself. So do halves: torch
    rounds both factors of a product and its sum to halves, and this layer rounds the sum.
    """
    of_halves = element(op.results[0].type) == f16
    weight = cast(torch.Tensor, value(op.operands[1])).abs().double()
    is_transposed = "transposed" in op.SCHEMA.by_name and op.arg("transposed")
    axis = 1 if is_transposed else 0
    reach = float(weight.sum([d for d in range(weight.dim()) if d != axis]).max())
    # The token's quantized input may exceed the tensor's by a step: it enters the rounding too.
    moved = step * (1.0 + (_HALF_SLACK if of_halves else _ZERO_POINT_SLACK)) * reach
    relative = 2.0 * growth(terms(op)) + (_BFLOAT16 if scales_rounded else 0.0)
    rounded = (relative + (5.0 * _HALF if of_halves else 0.0)) * (magnitude(op, value) + moved)
    return Bound(absolute=moved + rounded, reason=STORED_LAYER.reason)


def finer_tokens(given: DynamicTensor, filter: torch.Tensor, held: Quantization) -> Bound:
    """Bound the difference of products of tokens that are quantized together or in parts.

    As in `stored_layer`, a part's step is no greater than the whole's.

    Args:
        given: the tokens quantized together.
        filter: the stored weights, outputs first.
        held: the quantized type of the stored weights.
    """
    scales = held.scale_values(torch.float64)
    reach = float((filter.double().abs().flatten(1).sum(1) * scales).max())
    step = float(given.scale.max())
    moved = step * (1.0 + _ZERO_POINT_SLACK) * reach
    products = 256.0 * step * reach
    rounded = 2.0 * growth(filter[0].numel()) * (products + moved)
    return Bound(absolute=moved + rounded, reason=STORED_LAYER.reason)


STORED_LAYER = Bound(
    varies=True,
    reason="each token is quantized by its own range: a step of the input times the sum of a "
    "row of weights",
)


def conversion(parameters: Quantization) -> Bound:
    """Return the bound of a conversion by 1/scale in float64 (PT2E) or in float32 (XNNPACK)."""
    scales = parameters.scale_values(torch.float64)
    is_single = bool((scales.float() == scales).all())
    return EXACT if is_single else ROUNDED_ONCE
