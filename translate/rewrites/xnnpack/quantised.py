"""What the lowerings of quantised ops must know of their operands, and the constants they write.

A quantised op is float in the program: it stands between `quant.dcast` and `quant.qcast`. It may
take the integers themselves only where XNNPACK has a kernel for exactly these parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.quant import (
    Quantization,
    StorageCast,
    UniformQuantizedType,
    quantization,
)
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.xnnpack.datatypes import STATIC_INT8, datatype
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.quantised.recognise import StoredWeight
from stepwell.translate.rewrites.xnnpack.guards import not_held

_BIAS_LIMIT = 2.0**31 - 2**7
"""The greatest float32 below 2³¹ is 2³¹ − 2⁷: a bias of more units does not fit an int32."""
MAX_RESCALE = 256.0
"""XNNPACK rescales products by less than this."""


def not_static_int8(value: SSAValue) -> Refusal | None:
    """The value is a tensor of qint8 or quint8 that XNNPACK can hold."""
    if datatype(value.type) not in STATIC_INT8:
        return Refusal(
            f"XNNPACK has no static int8 kernel for values of {dtype_name(element(value.type))}"
        )
    return not_held(value)


def not_computed_range(value: SSAValue) -> Refusal | None:
    """A computed value may take every value of its storage: kernels clamp to int8 only."""
    held = quantization(value.type)
    assert held is not None
    if (held.low, held.high) != held.default_range:
        return Refusal(
            f"its values stay in {held.low}:{held.high}; XNNPACK uses the whole range of the type"
        )
    return None


def not_a_filter(weight: StoredWeight, axis: int) -> Refusal | None:
    """A weight is int8, symmetric, with one scale or one for each index of its output axis."""
    held = weight.held
    if held.bits != 8 or not held.signed or held.expressed != f32:
        return Refusal("XNNPACK's quantised weights are signed int8 of float32 values")
    if held.sub_channel:
        return Refusal("the weight has scales for groups; a static kernel takes one a channel")
    if held.axis not in (None, axis):
        return Refusal(f"the weight's scales lie on axis {held.axis}, its outputs on {axis}")
    if not held.is_symmetric:
        return Refusal("the weight has a zero point; XNNPACK's weights are symmetric")
    return None


def not_rescalable(source: SSAValue, weight: StoredWeight, made: SSAValue) -> Refusal | None:
    """Products must shrink, or grow by less than 256, on their way to the result's scale."""
    result = quantization(made.type)
    assert result is not None
    given = quantization(source.type)
    if not result.is_per_tensor or given is None or not given.is_per_tensor:
        return Refusal("an activation has a scale for each index of an axis; XNNPACK's have one")
    ratio = product_step(source, weight) / result.scale
    if ratio >= MAX_RESCALE:
        return Refusal(f"products are rescaled by {ratio:g}; XNNPACK takes less than 256")
    return None


def product_step(source: SSAValue, weight: StoredWeight) -> float:
    """The largest step of a product: the input's scale times the weight's largest."""
    given = quantization(source.type)
    assert given is not None
    return given.scale * max(weight.held.scales)


def not_a_bias(
    bias: SSAValue | None, source: SSAValue, weight: StoredWeight, program: Program
) -> Refusal | None:
    """A bias is a float32 constant that fits int32 in units of the products' scales."""
    if bias is None:
        return None
    key = weight_key(bias)
    if key is None:
        return Refusal("the bias is computed at run time; XNNPACK packs it with the weights")
    given = quantization(source.type)
    assert given is not None
    steps = weight.held.scale_values(torch.float64) * given.scale
    if (program.weights.get(key).to(torch.float64).abs() / steps >= _BIAS_LIMIT).any():
        return Refusal("the bias overflows int32 in units of the products")
    return None


def typed_constant(rw: Rewriter, key: str, held: Quantization) -> SSAValue:
    """A weight's stored integers under their type."""
    stored = rw.weight(key)
    type_ = with_element(stored.type, UniformQuantizedType(held))
    return rw.insert(StorageCast(stored, type_)).results[0]


def typed_bias(
    rw: Rewriter, bias: SSAValue | None, source: SSAValue, weight: StoredWeight
) -> list[SSAValue]:
    """The bias as int32 in units of the products' scales; nothing if there is none."""
    if bias is None:
        return []
    given, key = quantization(source.type), weight_key(bias)
    assert given is not None and key is not None
    held = bias_type(given.scale, weight.held)
    stored = rw.weights.derive("quant.store", [key], **store_parameters(held))
    return [typed_constant(rw, stored, held)]


def bias_type(input_scale: float, weight: Quantization) -> Quantization:
    """int32 with the product of both scales, for each output where the weight has one for each."""
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


def on_axis(held: Quantization, axis: int) -> Quantization:
    """The same scales, on another axis of the tensor."""
    return held if held.is_per_tensor else replace(held, blocks=((axis, 1),))


def per_channel(held: Quantization, axis: int, channels: int) -> Quantization:
    """A scale for every channel: kernels with run-time scales take no others."""
    if not held.is_per_tensor:
        return on_axis(held, axis)
    return replace(
        held,
        scales=[held.scale] * channels,
        zero_points=(0,) * channels,
        blocks=((axis, 1),),
        grid=(channels,),
    )


def is_read_once(value: SSAValue) -> bool:
    """Whether exactly one op reads a value."""
    return len(list(value.uses)) == 1


def limits(low: float | None, high: float | None) -> dict[str, Any]:
    """The fields of a node's output range."""
    named: Sequence[tuple[str, float | None]] = (("output_min", low), ("output_max", high))
    return {name: value for name, value in named if value is not None}
