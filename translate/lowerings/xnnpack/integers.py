"""Match layers between casts that XNNPACK supports: int8 or uint8 throughout, with one quantized
result.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import quantization
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.translate.lowerings.goals import Grammar, grammar
from stepwell.translate.lowerings.lowering import refuse
from stepwell.translate.quantized.layers import Layer, Parts, layer_of
from stepwell.translate.quantized.recognize import (
    Reals,
    Use,
    common_bounds,
    distinct,
    quantized_source,
)
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import single
from stepwell.translate.rewrites.xnnpack.quantized.quantized import (
    not_a_filter,
    not_of_integers,
    not_rescalable,
    not_signed_alike,
    not_within_sums,
    product_step,
)
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import (
    ROUNDED_ONCE,
    static_layer,
)


def sources_of(layer: Layer) -> tuple[SSAValue, ...]:
    """Return the layer's quantized operands."""
    return tuple(given.value for given in layer.inputs)


def limits(use: Use, *clamps: Reals) -> dict[str, Any]:
    """Return a node's output range fields from the clamps that follow the op, innermost last."""
    bounds = common_bounds((use.bounds, *clamps))
    low, high = (None if bound is None else single(bound) for bound in bounds)
    if low is not None and high is not None and not low < high:
        refuse(f"the lower bound {low} is not below the upper bound {high}")
    named = (("output_min", low), ("output_max", high))
    return {name: value for name, value in named if value is not None}


def changes_scale(layer: Layer, use: Use) -> bool:
    """Whether an operand and the result have different quantizations."""
    return any(element(source.type) != element(use.type) for source in sources_of(layer))


def needs_kernel_range(layer: Layer, use: Use) -> None:
    """Refuse operands whose scale is not 2⁻¹⁰ to 2⁸ times the result's (XNNPACK's subgraph)."""
    for given in layer.inputs:
        ratio = given.held.scale / use.held.scale
        if not 2.0**-10 <= ratio < 2.0**8:
            refuse(
                f"an operand's scale is {ratio:g} times the result's; XNNPACK takes ratios from 2⁻¹⁰ to 2⁸"
            )


def by_products(layer: Layer, value: Any) -> Any:
    """Bound the result of a static layer (`quantized_bounds.static_layer`)."""
    products = product_step(layer.inputs[0].value, layer.weight)
    return static_layer(layer.op, products, layer.uses[0].cast.result, value)


def _layer(op: SchemaOp, parts: Parts, program: Program, symbols: bool) -> Layer | Refusal | None:
    """Return the layer, or None if no operand is dequantized."""
    if not any(quantized_source(operand) for operand in parts.activations):
        return None
    layer = layer_of(op, parts, unsigned=True)
    if isinstance(layer, Refusal):
        return layer
    if len(distinct(layer.uses)) > 1:
        return Refusal("the result is quantized in several ways; a node has one quantization")
    result = layer.uses[0].cast.result
    refusal = not_of_integers(result, sources_of(layer))
    if refusal is not None or layer.constant is None:
        return refusal or layer
    source, weight = layer.inputs[0].value, layer.constant
    for refusal in (
        not_signed_alike(source, result),
        not_a_filter(weight, parts.axis),
        not_within_sums(layer.bias, source, weight, program),
        not_rescalable(source, weight, result),
    ):
        if refusal is not None:
            return refusal
    assert quantization(source.type) is not None
    return layer


grammar("xnnpack", Grammar(_layer, lambda x, b: x.value, lambda y, use, b: y, ROUNDED_ONCE))
