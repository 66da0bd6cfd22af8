"""Lowerings of int8: a quantization that is undone is FakeQuantize, a stored weight its product.

OpenVINO's low-precision transformations derive from them which operators run on integers. The
values in between are floats, as in PT2E's program.
"""

from __future__ import annotations

from typing import Any

import torch

from stepwell.dialects.quant.ops import QuantizeCast, StorageCast, block_values
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.integrations.openvino.lowerings.values import Value
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.types import dims
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import conversion

MOST_LEVELS = 256
"""The most levels for which OpenVINO has integer kernels."""


def _step(op: Any, value: Any) -> Bound:
    """Return the bound: one step of the quantization."""
    held = quantization(op.operands[0].type)
    assert held is not None
    return conversion(held)


def _spread(x: Value, held: Quantization, numbers: torch.Tensor) -> Value:
    """Return a number for each scale, in the shape that broadcasts against a tensor."""
    shape = [size if isinstance(size, int) else 1 for size in dims(x.ssa.type)]
    made = block_values(held, numbers.to(torch.float32), shape)
    return Value(x.b.constant(made), x.b) if made.ndim else x.constant(made, torch.float32)


@lowers(
    "quant.dcast",
    to="openvino",
    check="none",
    unless=lambda op: not isinstance(op.operands[0].owner, QuantizeCast),
    error_bound=_step,
    sample="""
    %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    """,
)
def fake_quantize(quantized: Value, *, op: Any, out: Out) -> Value:
    """Lower a quantization and its inverse to FakeQuantize between the least and the most."""
    x = Value(op.operands[0].owner.operands[0], quantized.b)
    held = quantization(op.operands[0].type)
    assert held is not None
    levels = held.high - held.low + 1
    if levels > MOST_LEVELS or held.sub_channel or out.dtype != f32:
        refuse("OpenVINO quantizes float32 to 256 levels at most, with scales along one axis")
    scales, zeros = held.scale_values(torch.float64), held.zero_point_values(torch.float64)
    low, high = (_spread(x, held, scales * (end - zeros)) for end in (held.low, held.high))
    return x.op("FakeQuantize", low, high, low, high, levels=levels)


@lowers(
    "quant.dcast",
    to="openvino",
    check="none",
    unless=lambda op: not isinstance(op.operands[0].owner, StorageCast),
    bound=roundings("the same product"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4xi8>
    %q = quant.scast %w : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    """,
)
def stored_weight(quantized: Value, *, op: Any, out: Out) -> Value:
    """Lower the numbers of a stored weight to Convert, Subtract and Multiply."""
    stored = Value(op.operands[0].owner.operands[0], quantized.b)
    held = quantization(op.operands[0].type)
    assert held is not None
    if weight_key(stored.ssa) is None or held.sub_channel or held.bits != 8 or out.dtype != f32:
        refuse("OpenVINO has integer kernels for weights of 8 bits, with scales along one axis")
    x = stored.cast(f32)
    if not held.is_symmetric:
        x = x.binary("Subtract", _spread(x, held, held.zero_point_values()))
    return x * _spread(x, held, held.scale_values())


RULES = lowerings_of(__name__)
