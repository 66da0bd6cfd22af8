"""Lowerings of int8: a quantization that is undone is FakeQuantize, a stored weight its product.

OpenVINO's low-precision transformations derive from them which operators run on integers. The
values in between are floats, as in PT2E's program.

On CPUs with AVX2 and without VNNI, OpenVINO's integer kernels add pairs of products of bytes in 16
bits with saturation: 255 · 127 · 2 becomes 32 767. A layer runs on integers only if its weights
exclude this, or if the CPU of the lowering has VNNI; else its weight is a float constant, which the
transformations leave alone.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Block, SSAValue

from stepwell.dialects.quant.ops import QuantizeCast, StorageCast, block_values
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.integrations.openvino.dialect import ConstantOp
from stepwell.integrations.openvino.lowerings.values import Value
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.types import dims
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.xnnpack.quantized.quantized_bounds import conversion

LARGEST_WEIGHT = 64
"""The sum of two products of bytes up to 255 with such weights is below 2¹⁵."""
WITH_VNNI = "x86-64-avx512"
"""The CPU, as named by the option `cpu`, whose integer kernels do not saturate."""
LAYERS = frozenset("linear convolution Convolution GroupConvolution".split())
PRODUCTS = frozenset(
    "mm bmm addmm baddbmm matmul MatMul scaled_dot_product_attention "
    "ScaledDotProductAttention".split()
)
"""Operators of products whose operands need not be stored."""
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
    context = x.b.program.context
    if context.option("cpu") != WITH_VNNI and _meets_another(op.results[0]):
        context.count("quantizations in floats, as 8-bit sums saturate without VNNI")
        scale = _spread(x, held, scales)
        low, high = (_spread(x, held, end - zeros) for end in (held.low, held.high))
        steps = x.binary("Divide", scale).op("Round", mode="half_to_even")
        return steps.binary("Maximum", low).binary("Minimum", high) * scale
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
    """Lower the numbers of a stored weight to Convert, Subtract and Multiply, or to floats if the
    sums of an integer kernel may saturate.
    """
    stored = Value(op.operands[0].owner.operands[0], quantized.b)
    held = quantization(op.operands[0].type)
    assert held is not None
    key = weight_key(stored.ssa)
    if key is None or held.sub_channel or held.bits != 8 or out.dtype != f32:
        refuse("OpenVINO has integer kernels for weights of 8 bits, with scales along one axis")
    b = stored.b
    if b.program.context.option("cpu") != WITH_VNNI and (
        not (held.is_symmetric and held.signed) or may_saturate(b.weights.get(key))
    ):
        b.program.context.count("float weights, as 8-bit sums saturate without VNNI")
        return Value(b.weight(b.weights.derive("quant.reals", [key], **store_parameters(held))), b)
    x = stored.cast(f32)
    if not held.is_symmetric:
        x = x.binary("Subtract", _spread(x, held, held.zero_point_values()))
    return x * _spread(x, held, held.scale_values())


def may_saturate(stored: torch.Tensor) -> bool:
    """Whether the sum of two products with stored integers may exceed 16 bits."""
    return bool((stored.to(torch.int16).abs() > LARGEST_WEIGHT).any())


def _meets_another(value: SSAValue) -> bool:
    """Whether a value may be multiplied by another one that is not constant, before it passes a
    layer: the transformations move scales through what is in between.
    """
    waiting, seen = [value], {value}
    while waiting:
        for use in waiting.pop().uses:
            op, name = use.operation, use.operation.name.split(".")[1]
            if name in LAYERS or isinstance(op, QuantizeCast):
                continue
            if name in PRODUCTS and not any(map(_is_stored, op.operands)):
                return True
            new = [] if name in PRODUCTS else [v for v in op.results if v not in seen]
            seen.update(new)
            waiting += new
    return False


def _is_stored(value: SSAValue) -> bool:
    """Whether a value is a weight, or computed from a single one."""
    while not isinstance(value.owner, WeightOp | ConstantOp):
        if isinstance(value.owner, Block | QuantizeCast):
            return False
        given = [v for v in value.owner.operands if not isinstance(v.owner, WeightOp | ConstantOp)]
        if len(given) > 1:
            return False
        value = (given or value.owner.operands)[0]
    return True


RULES = lowerings_of(__name__)
