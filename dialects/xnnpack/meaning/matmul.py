"""Semantics of nodes that multiply matrices, and the rounding that filters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.quant.ops import block_values
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.xnnpack.base import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.matmul import (
    BatchMatrixMultiply,
    FullyConnected,
    ScaledDotProductAttention,
)
from stepwell.dialects.xnnpack.meaning.arithmetic import (
    DynamicTensor,
    clamp_stored,
    parameters,
    requantize,
    single,
)
from stepwell.dialects.xnnpack.meaning.elementwise import clamp_float
from stepwell.ir.declared.interpretation import interprets

Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor], Tensor]
"""A bilinear map of input and filter; the last axis of the result (or its `outputs` axis) is that
of the filter.
"""


def dtype_of(value: SSAValue) -> torch.dtype:
    """Return the value's dtype: float16, bfloat16 or float32."""
    halves = {"fp16": torch.float16, "bf16": torch.bfloat16}
    return halves.get(datatype(value.type) or "", torch.float32)


def weighted(op: XnnpackOp, args: Sequence[Any], product: Product, outputs: int) -> Tensor:
    """Multiply input and filter and add the bias, in the arithmetic of the datatypes.

    Args:
        op: the op, whose operands are input, filter and optionally bias.
        args: the values of the operands.
        product: the bilinear map in float64 (exact on stored integers) or float32.
        outputs: number of output channels, on the last axis of the result.
    """
    given, weight = args[0], cast(Tensor, args[1])
    bias = cast("Tensor | None", args[2] if len(args) > 2 else None)
    made, operand_quantization = op.output, quantization(op.operands[1].type)
    if isinstance(given, DynamicTensor):
        assert operand_quantization is not None
        shifted = given.stored.double() - given.zero_point.double()
        scales = _channel_scales(operand_quantization, outputs)
        if operand_quantization.sub_channel:
            spread = block_values(
                operand_quantization, operand_quantization.scale_values(torch.float64), weight.shape
            )
            total = (product(shifted, weight.double() * spread) * given.scale).float()
        else:
            total = product(shifted, weight.double()).float() * given.scale
            total = total.double() * scales.double()
        total = total if bias is None else total + bias.double()
        return clamp_float(total.float(), op).to(dtype_of(made))
    taken = quantization(op.operands[0].type)
    if taken is not None:
        assert operand_quantization is not None
        moved = weight.double() - (
            operand_quantization.zero_point if operand_quantization.is_per_tensor else 0
        )
        total = product(given.double() - taken.zero_point, moved)
        if bias is not None:
            total = total + bias.double()
        params = parameters(made.type)
        scale = (
            single(taken.scale)
            * _channel_scales(operand_quantization, outputs)
            / single(params.scale)
        )
        return clamp_stored(requantize(total, scale, params), params, op.output_range)
    total = product(given.float(), weight.float())
    if bias is not None:  # Packed as float16 next to other float16.
        total = total + bias.to(weight.dtype if weight.dtype == torch.half else bias.dtype).float()
    if operand_quantization is not None:
        total = total * _channel_scales(operand_quantization, outputs)
    return clamp_float(total, op).to(dtype_of(made))


def _channel_scales(held: Quantization, outputs: int) -> Tensor:
    scales = held.scale_values()
    return scales if len(scales) == outputs else scales.reshape(-1)[:1].expand(outputs)


@interprets(FullyConnected)
def _fully_connected(op: FullyConnected, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    weight = cast(Tensor, args[1])
    transposed = op.flag("transpose_weights")
    outputs = weight.shape[1 if transposed else 0]

    def product(tensor: Tensor, weight: Tensor) -> Tensor:
        return tensor @ (weight if transposed else weight.transpose(0, 1))

    return (weighted(op, args, product, outputs),)


@interprets(BatchMatrixMultiply)
def _batch_matrix_multiply(
    op: BatchMatrixMultiply, args: Sequence[Any], ctx: object
) -> Sequence[Any]:
    transposed = op.flag("transpose_b")

    def product(left: Tensor, right: Tensor) -> Tensor:
        return left @ (right.transpose(-1, -2) if transposed else right)

    outputs = cast(Tensor, args[1]).shape[-2 if transposed else -1]
    right_quantization = quantization(op.right.type)
    if right_quantization is not None and not right_quantization.is_per_tensor:
        outputs = len(right_quantization.scales)
    return (weighted(op, args, product, outputs),)


@interprets(ScaledDotProductAttention)
def _attention(op: ScaledDotProductAttention, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    query, key, value, scale, mask = (cast(Tensor, arg).float() for arg in args)
    scores = (query * scale) @ key.transpose(-1, -2) + mask
    return ((scores.softmax(-1) @ value).to(dtype_of(op.output)),)
