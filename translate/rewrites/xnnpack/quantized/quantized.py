"""Conditions on operands of quantized ops, and the constants that their lowerings write.

A quantized op is float in the program: it is between `quant.dcast` and `quant.qcast`, where
`translate/quantized` recognizes it. It may read the integers themselves only where XNNPACK has a
kernel for exactly these parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from stepwell.dialects.quant import (
    Quantization,
    StorageCast,
    UniformQuantizedType,
    quantization,
)
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.xnnpack.datatypes import STATIC_INT8, datatype
from stepwell.dialects.xnnpack.weights import constant_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, with_element
from stepwell.translate.quantized.layers import Layer
from stepwell.translate.quantized.recognize import (
    Bias,
    StoredWeight,
    integer_bias,
    not_for_each_output,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_held

_BIAS_LIMIT = 2.0**31 - 2**7
"""The greatest float32 below 2³¹ is 2³¹ − 2⁷: a bias of more units does not fit an int32."""
MAX_RESCALE = 256.0
"""XNNPACK rescales products by less than this."""


def not_static_int8(value: SSAValue) -> Refusal | None:
    """Refuse unless the value is a tensor of qint8 or quint8 that XNNPACK supports."""
    if datatype(value.type) not in STATIC_INT8:
        return Refusal(
            f"XNNPACK has no static int8 kernel for values of {dtype_name(element(value.type))}"
        )
    return not_held(value)


def not_computed_range(value: SSAValue) -> Refusal | None:
    """Refuse a result with a narrower range than its storage type: kernels clamp to int8 only."""
    value_quantization = quantization(value.type)
    assert value_quantization is not None
    if (value_quantization.low, value_quantization.high) != value_quantization.default_range:
        return Refusal(
            f"the values stay in {value_quantization.low}:{value_quantization.high}; XNNPACK uses the whole range of the type"
        )
    return None


def not_of_integers(made: SSAValue, sources: Sequence[SSAValue]) -> Refusal | None:
    """Refuse operands of other int8 kinds than the result, and constants that are not copied."""
    for refusal in (
        not_static_int8(made),
        not_computed_range(made),
        *(not_static_int8(source) for source in sources),
    ):
        if refusal is not None:
            return refusal
    if len({datatype(value.type) for value in (made, *sources)}) > 1:
        return Refusal("operands and result are int8 and uint8; XNNPACK wants one of them")
    if all(constant_of(source) is not None for source in sources):
        return Refusal("all operands are constants; XNNPACK needs one that is computed")
    return None


def not_signed_alike(source: SSAValue, value: SSAValue) -> Refusal | None:
    """Refuse an input or result that is not qint8, because quint8 needs an unsigned weight."""
    kinds = {datatype(source.type), datatype(value.type)}
    if kinds == {"qint8"}:
        return None
    return Refusal(
        f"input and result are {' and '.join(sorted(map(str, kinds)))}; signed weights need qint8"
    )


def not_a_filter(weight: StoredWeight, axis: int) -> Refusal | None:
    """Refuse unless the weight is symmetric, of float32, with one scale or one per output."""
    if weight.held.expressed != f32:
        return Refusal(
            "the weight does not dequantize to float32, as XNNPACK's quantized weights do"
        )
    return not_for_each_output(weight, axis)


def not_rescalable(source: SSAValue, weight: StoredWeight, value: SSAValue) -> Refusal | None:
    """Refuse products that grow by 256 or more when they are rescaled to the result's scale."""
    result = quantization(value.type)
    assert result is not None
    ratio = product_step(source, weight) / result.scale
    if ratio >= MAX_RESCALE:
        return Refusal(f"products are rescaled by {ratio:g}; XNNPACK takes less than 256")
    return None


def product_step(source: SSAValue, weight: StoredWeight) -> float:
    """Return the largest step of a product: the input's scale times the weight's largest scale."""
    source_quantization = quantization(source.type)
    assert source_quantization is not None
    return source_quantization.scale * max(weight.held.scales)


def not_within_sums(
    bias: Bias | None, source: SSAValue, weight: StoredWeight, program: Program
) -> Refusal | None:
    """Refuse a bias that overflows int32 in units of the products' scales."""
    source_quantization = quantization(source.type)
    assert source_quantization is not None
    if bias is None:
        return None
    steps = weight.held.scale_values(torch.float64) * source_quantization.scale
    reals = program.weights.get(bias.key).to(torch.float64)
    if bias.unit is not None:
        reals = reals * torch.tensor(bias.unit, dtype=torch.float64)
    if (reals.abs() / steps >= _BIAS_LIMIT).any():
        return Refusal("the bias overflows int32 in units of the products")
    return None


def of_singles(parameters: Quantization) -> Quantization:
    """Return the same integers under a quantized type of float32."""
    return replace(parameters, expressed=f32)


def typed_constant(rw: Rewriter, key: str, parameters: Quantization) -> SSAValue:
    """Return a weight's stored integers with their quantized type."""
    stored = rw.weight(key)
    type_ = with_element(stored.type, UniformQuantizedType(parameters))
    return rw.insert(StorageCast(stored, type_)).results[0]


def typed_bias(rw: Rewriter, layer: Layer) -> SSAValue | None:
    """Return the bias as int32 in units of the products' scales; None if there is none."""
    given, bias, weight = layer.inputs[0].held, layer.bias, layer.weight.held
    if bias is None:
        return None
    held = bias_type(given.scale, weight)
    if bias.unit is None:
        key = rw.weights.derive("quant.store", [bias.key], **store_parameters(held))
    else:
        (channels,) = dims(rw.weights.type_of(bias.key))
        assert isinstance(channels, int)
        key = integer_bias(bias, list(held.scales), channels, rw.program)
        assert key is not None
    return typed_constant(rw, key, held)


def bias_type(input_scale: float, weight: Quantization) -> Quantization:
    """Return int32 with the product of both scales, one per output if the weight has those."""
    scales = tuple(
        (weight.scale_values() * input_scale).tolist()
        if not weight.is_per_tensor
        else [weight.scale * input_scale]
    )
    low = -(1 << 31)
    per_output = not weight.is_per_tensor
    return Quantization(
        32,
        True,
        low,
        -low - 1,
        f32,
        scales,
        (0,) * len(scales),
        ((0, 1),) if per_output else (),
        (len(scales),) if per_output else (),
    )


def on_axis(parameters: Quantization, axis: int) -> Quantization:
    """Return the same scales, on another axis of the tensor."""
    return parameters if parameters.is_per_tensor else replace(parameters, blocks=((axis, 1),))


def per_channel(parameters: Quantization, axis: int, channels: int) -> Quantization:
    """Return one scale for every channel, as kernels with dynamic scales require."""
    if not parameters.is_per_tensor:
        return on_axis(parameters, axis)
    return replace(
        parameters,
        scales=[parameters.scale] * channels,
        zero_points=(0,) * channels,
        blocks=((axis, 1),),
        grid=(channels,),
    )
