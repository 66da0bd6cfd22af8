"""Semantics of reductions, which keep the axis with size 1, and of ARGMAX, which removes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ignores_nan, narrow, wide
from stepwell.dialects.tosa_mxfp import sequential
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter, interprets

Args = Sequence[Any]


@interprets(t.ReduceSumOp)
def _sum(op: t.ReduceSumOp, args: Args, ctx: Interpreter) -> Args:
    x, axis = args[0], op.axis.value.data
    if not x.dtype.is_floating_point:
        return (narrow(x.sum(dim=axis, keepdim=True), op),)
    # fp16 is accumulated in fp16, bf16 in fp32.
    return (narrow(sequential.total(x if x.dtype == torch.float16 else wide(x), axis), op),)


@interprets(t.ReduceProductOp)
def _product(op: t.ReduceProductOp, args: Args, ctx: Interpreter) -> Args:
    # float16 is rounded at each multiplication
    return (sequential.multiplied(args[0], op.axis.value.data),)


@interprets(t.ReduceAllOp, t.ReduceAnyOp)
def _all_or_any(op: t.ReduceAllOp | t.ReduceAnyOp, args: Args, ctx: Interpreter) -> Args:
    reduce = torch.all if isinstance(op, t.ReduceAllOp) else torch.any
    return (reduce(args[0], dim=op.axis.value.data, keepdim=True),)


@interprets(t.ReduceMaxOp, t.ReduceMinOp)
def _extremum(op: t.ReduceMaxOp | t.ReduceMinOp, args: Args, ctx: Interpreter) -> Args:
    x, axis = wide(args[0]), op.axis.value.data
    greatest = isinstance(op, t.ReduceMaxOp)
    if ignores_nan(op) and x.dtype.is_floating_point:
        worst = -torch.inf if greatest else torch.inf
        missing = torch.isnan(x)
        result = torch.where(missing, worst, x)
        result = result.amax(axis, True) if greatest else result.amin(axis, True)
        return (narrow(torch.where(missing.all(axis, True), torch.nan, result), op),)
    return (narrow(x.amax(axis, True) if greatest else x.amin(axis, True), op),)


@interprets(t.ArgMaxOp)
def _argmax(op: t.ArgMaxOp, args: Args, ctx: Interpreter) -> Args:
    x = wide(args[0])
    if ignores_nan(op) and x.dtype.is_floating_point:
        x = torch.where(torch.isnan(x), -torch.inf, x)
    return (narrow(x.argmax(dim=op.axis.value.data), op),)
