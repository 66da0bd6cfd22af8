"""Convert a kernel's result to the required quantization, through a table if needed."""

from __future__ import annotations

from dataclasses import replace

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.cmsis.ops import CmsisOp, QuantizedActivation
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType, quantization
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import AnyTensor, with_element
from stepwell.translate.quantized.recognize import Use


def kernel_type(use: Use) -> AnyTensor:
    """Return the quantized type of a result, `use`, with the full int8 (int16) range, for kernels
    without clamp.
    """
    low, high = use.held.default_range
    held = replace(use.held, low=low, high=high)
    return with_element(use.type, UniformQuantizedType(held))


def is_delivered(parameters: Quantization, use: Use) -> bool:
    """Whether a kernel's result already has the quantization and range required by `use`."""
    return (parameters.scale, parameters.zero_point) == (use.held.scale, use.held.zero_point) and (
        use.low,
        use.high,
    ) == (-128, 127)


def rescaled(rw: Rewriter, value: SSAValue, use: Use) -> SSAValue:
    """Convert an int8 value to the quantization and range that `use` requires, by one lookup."""
    value_quantization = quantization(value.type)
    assert value_quantization is not None
    if value.type == use.type and (is_delivered(value_quantization, use) or is_clamped(value, use)):
        return value
    return through_table(rw, value, use.held, use.type, (use.low, use.high))


def is_clamped(value: SSAValue, use: Use) -> bool:
    """Whether the op that computed a value already clamped it to the range required by `use`."""
    maker = value.owner
    if not isinstance(maker, CmsisOp) or "activation_min" not in maker.properties:
        return False
    return (maker.number("activation_min"), maker.number("activation_max")) == (use.low, use.high)


def through_table(
    rw: Rewriter,
    value: SSAValue,
    wanted: Quantization,
    type_: Attribute,
    limits: tuple[int, int] = (-128, 127),
) -> SSAValue:
    """Convert an int8 value to another quantization: q(dq(x)), clamped, as 256 entries."""
    value_quantization = quantization(value.type)
    assert value_quantization is not None
    codes = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)
    table = quantize(dequantize(codes, value_quantization), wanted).clamp(*limits)
    lookup = QuantizedActivation.make(value, rw.constant(table, "table"), result=type_)
    return rw.insert(lookup).results[0]
