"""CAST, and the operators on block-scaled tensors, with the exactness of `tosa_mxfp`'s numerics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.meaning.arithmetic import cast
from stepwell.dialects.tosa.meaning.values import (
    BlockScaled,
    element_of,
    payload_of,
    result_element,
    wide,
)
from stepwell.dialects.tosa_mxfp.numerics import cast_from_block_scaled, cast_to_block_scaled
from stepwell.dialects.tosa_mxfp.products import (
    Scaled,
    conv2d_block_scaled,
    matmul_t_block_scaled,
)
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.dtypes import torch_dtype

Args = Sequence[Any]


def values_of(x: BlockScaled, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the floats of a block-scaled tensor."""
    return cast_from_block_scaled(x.codes, x.scales, x.payload, dtype)


def _scaled(op: t.MatMulTBlockScaledOp | t.Conv2dBlockScaledOp, args: Args, first: int) -> Scaled:
    payload = payload_of(element_of(op.operands[first]))
    return args[first].view(torch.uint8), args[first + 1].view(torch.uint8), payload


@interprets(t.CastOp)
def _cast(op: t.CastOp, args: Args, ctx: Interpreter) -> Args:
    (x,) = args
    target = result_element(op)
    if isinstance(target, BlockScaledType):
        payload = payload_of(target.payload)
        values = values_of(x) if isinstance(x, BlockScaled) else wide(x)
        return (BlockScaled(*cast_to_block_scaled(values, payload), payload),)
    if isinstance(x, BlockScaled):
        return (values_of(x, torch_dtype(target)),)
    return (cast(x, element_of(op.input), target),)


@interprets(t.CastToBlockScaledOp)
def _cast_to(op: t.CastToBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    payload = payload_of(element_of(op.output_data))
    codes, scales = cast_to_block_scaled(wide(args[0]), payload)
    if payload.torch_dtype is not None:
        codes = codes.view(payload.torch_dtype)
    return (codes, scales.view(torch.float8_e8m0fnu))


@interprets(t.CastFromBlockScaledOp)
def _cast_from(op: t.CastFromBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    codes, scales = (x.view(torch.uint8) for x in args)
    payload = payload_of(element_of(op.input_data))
    return (cast_from_block_scaled(codes, scales, payload, torch_dtype(result_element(op))),)


@interprets(t.MatMulTBlockScaledOp)
def _matmul_t(op: t.MatMulTBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    return (matmul_t_block_scaled(_scaled(op, args, 0), _scaled(op, args, 2)),)


@interprets(t.Conv2dBlockScaledOp)
def _conv2d(op: t.Conv2dBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    bias, pad, stride, dilation = args[4:]
    x, weight = _scaled(op, args, 0), _scaled(op, args, 2)
    return (conv2d_block_scaled(x, weight, bias, pad, stride, dilation),)


@interprets(t.ReshapeBlockScaledOp)
def _reshape(op: t.ReshapeBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    *values, shape = args
    if len(values) == 1:
        return (values[0].reshape(shape),)
    codes, scales = values
    return (codes.reshape(shape), scales.reshape([*shape[:-1], shape[-1] // 32]))
