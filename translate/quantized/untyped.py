"""Casts between reals and integers in `quantized_decomposed` form: parameters as arguments.

This is the inverse of `translate/rewrites/quant/casts.py`, which moves the parameters into the
type.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import Quantization
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims

_OF = "quantized_decomposed"


def quantized(b: Rewriter, value: SSAValue, held: Quantization) -> SSAValue:
    """Return the plain stored integers of a real value; `held` has one scale, or one per
    channel.
    """
    return _called(b, "quantize", value, held)


def dequantized(b: Rewriter, stored: SSAValue, quantization: Quantization) -> SSAValue:
    """Return the real values of plain stored integers."""
    size = _group(quantization, stored)
    if size is None:
        return _called(b, "dequantize", stored, quantization)
    cls = op_class(f"{_OF}.dequantize_per_channel_group.default")
    scales = b.constant(quantization.scale_values().reshape(quantization.grid), "scales")
    zeros = b.constant(quantization.zero_point_values().reshape(quantization.grid), "zero_points")
    limits = (quantization.low, quantization.high, storage_element(quantization))
    return b.insert(cls.make(stored, scales, zeros, *limits, size, quantization.expressed)).results[
        0
    ]


def is_spelled(quantization: Quantization, stored: SSAValue) -> bool:
    """Whether `quantized_decomposed` can dequantize such integers."""
    return not quantization.sub_channel or _group(quantization, stored) is not None


def _group(quantization: Quantization, stored: SSAValue) -> int | None:
    """Return how many elements of a row share a scale, if a row has several scales."""
    blocks, shape = dict(quantization.blocks), dims(stored.type)
    if not quantization.sub_channel or len(shape) != 2 or blocks.get(0) != 1:
        return None
    return blocks.get(1)


def _called(b: Rewriter, verb: str, value: SSAValue, quantization: Quantization) -> SSAValue:
    form = "tensor" if quantization.is_per_tensor else "channel"
    cls = op_class(f"{_OF}.{verb}_per_{form}.default")
    numbers: tuple[object, ...] = (
        (quantization.scale, quantization.zero_point)
        if quantization.is_per_tensor
        else (
            b.constant(quantization.scale_values(torch.float64), "scales"),
            b.constant(quantization.zero_point_values(torch.int64), "zero_points"),
            quantization.axis,
        )
    )
    made = cls.make(
        value, *numbers, quantization.low, quantization.high, storage_element(quantization)
    )
    return b.insert(made).results[0]
