"""Lower quantize and dequantize operations between integers and floats to TOSA operators.

These casts remain between integer operators and operations that stay in floats; their lowerings
match PyTorch bit for bit. A float is multiplied by the reciprocal of the scale. CAST rounds it to
the nearest integer, ties to even, and saturates. A zero point is added to the integer, because
added to the float an odd zero point would change how ties are rounded. CAST therefore gives 16
bits, which hold the sum, and a RESCALE by one saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.quant import Quantization, StorageCast, quantization
from stepwell.dialects.quant.ops import block_values
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, f32, i8, i16
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.rewriting.rewrite import Value as RunTime
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, no_refusal, refuse
from stepwell.translate.lowerings.tosa.values import Value, clamp
from stepwell.translate.rewrites.tosa.integers.integers import WIDTHS, rescale, stored
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rewrites.tosa.operators.lowering import unfit


def _but_nans(op: Any, value: RunTime) -> Bound:
    """Return a bound that is exact except for NaN, whose integer PyTorch leaves to the
    processor.
    """
    result_quantization = quantization(op.result.type)
    assert result_quantization is not None
    is_defined = not bool(value(op.input).isnan().any())
    return EXACT if is_defined else Bound(units=1 << result_quantization.bits, reason="NaN")


@lowers(
    "quant.qcast",
    to="tosa",
    check="none",
    bound=EXACT,
    error_bound=_but_nans,
    sample="%y = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>",
)
def quantize(x: Value, *, op: Any, b: Builder) -> Value:
    """Lower a quantization to MUL and CAST, and a RESCALE that adds the zero point."""
    border = _border(op.input, op.result)
    if not border.is_symmetric and border.bits != 8:
        refuse("RESCALE takes zero points for 8-bit integers only")
    if len(set(border.zero_points)) > 1:
        refuse("RESCALE takes one zero point, not one for each index of an axis")
    zero, width = border.zero_points[0], WIDTHS[border.bits]
    y = multiplied(x.single(), border, [1 / scale for scale in border.scales])
    y = y.cast(i16 if zero else width)
    if zero:
        y = Value(rescale(y.ssa, [1.0], i8, 0, zero, b), b)
    if (border.low, border.high) != border.default_range:
        y = clamp(y, border.low, border.high)
    return Value(b.rw.insert(StorageCast(y.ssa, op.result.type)).results[0], b)


@lowers(
    "quant.dcast",
    to="tosa",
    check="none",
    bound=EXACT,
    sample="%y = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>",
)
def dequantize(x: Value, *, op: Any, b: Builder) -> Value:
    """Lower a dequantization to CAST, SUB of the zero points and MUL; 17-bit sums are exact in
    f32.
    """
    border = _border(op.result, op.input)
    y = Value(stored(x.ssa, b), b).cast(f32)
    if not border.is_symmetric:
        y = y - spread(border, border.zero_points, y)
    return multiplied(y, border, border.scales).cast(border.expressed)


def _border(real: SSAValue, integers: SSAValue) -> Quantization:
    """Return the quantization of a cast; refuse types that TOSA does not have."""
    border = quantization(integers.type)
    assert border is not None
    no_refusal(unfit(real, symbols=True))
    if not border.signed:
        refuse(f"TOSA has no type {dtype_name(border.storage)}; quantize to signed integers")
    if border.bits not in WIDTHS:
        refuse(
            f"the activations are {dtype_name(border.storage)}; TOSA's layers take int8 or int16"
        )
    return border


def spread(parameters: Quantization, numbers: Sequence[float | int], like: Value) -> Value:
    """Return a number per tensor or per block, in f32, of a shape that broadcasts to `like`."""
    if parameters.is_per_tensor:
        return like.like(numbers[0])
    values = block_values(parameters, torch.tensor(numbers, dtype=torch.float32), [1] * like.rank)
    return like.tensor(values)


def multiplied(value: Value, parameters: Quantization, factors: Sequence[float]) -> Value:
    """Return the product with a factor per tensor or per block; a factor of 1 adds no operator."""
    return value if set(factors) == {1.0} else value * spread(parameters, factors, value)


RULES = lowerings_of(__name__)
