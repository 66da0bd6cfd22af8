"""Semantics of constants, branches, loops and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.dialects.tosa.meaning.values import BlockScaled, payload_of, result_element, run_dtype
from stepwell.dialects.tosa.structural import CondIfOp, ConstOp, WhileLoopOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.types import WeightAttr

Args = Sequence[Any]


@interprets(ConstOp)
def _const(op: ConstOp, args: Args, ctx: Interpreter) -> Args:
    values, element = op.values, result_element(op)
    if not isinstance(values, WeightAttr):
        return (tensor_of_dense(values, run_dtype(element)),)
    weight = ctx.weights.get(values.data)
    if isinstance(element, BlockScaledType):
        assert op.scales is not None
        scales = ctx.weights.get(op.scales.data)
        codes, scales = weight.view(torch.uint8), scales.view(torch.uint8)
        return (BlockScaled(codes, scales, payload_of(element.payload)),)
    return (weight,)


@interprets(CondIfOp)
def _cond_if(op: CondIfOp, args: Args, ctx: Interpreter) -> Args:
    region = op.then_graph if bool(args[0].reshape(-1)[0]) else op.else_graph
    return ctx.run_region(region, args[1:])


@interprets(WhileLoopOp)
def _while_loop(op: WhileLoopOp, args: Args, ctx: Interpreter) -> Args:
    values = tuple(args)
    while bool(ctx.run_region(op.cond_graph, values)[0].reshape(-1)[0]):
        values = ctx.run_region(op.body_graph, values)
    return values


@interprets(t.FFT2dOp)
def _fft2d(op: t.FFT2dOp, args: Args, ctx: Interpreter) -> Args:
    x = torch.complex(args[0].to(torch.float64), args[1].to(torch.float64))
    inverse = bool(op.inverse.value.data)
    # TOSA normalizes neither direction.
    y = torch.fft.ifft2(x, norm="forward") if inverse else torch.fft.fft2(x)
    return (y.real.to(torch.float32), y.imag.to(torch.float32))


@interprets(t.RFFT2dOp)
def _rfft2d(op: t.RFFT2dOp, args: Args, ctx: Interpreter) -> Args:
    y = torch.fft.rfft2(args[0].to(torch.float64))
    return (y.real.to(torch.float32), y.imag.to(torch.float32))
