"""Semantics of nodes that move elements. Quantized ones move stored integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.base import XnnpackOp
from stepwell.dialects.xnnpack.delegate import DelegateOp
from stepwell.dialects.xnnpack.meaning.arithmetic import quantize_shift_then_round
from stepwell.dialects.xnnpack.movement import (
    CONCATENATES,
    StaticConstantPad,
    StaticReshape,
    StaticSlice,
    StaticTranspose,
)
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter, interprets


@interprets(DelegateOp)
def _delegate(op: DelegateOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    return ctx.run_region(op.body, args)


@interprets(StaticReshape)
def _reshape(op: StaticReshape, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].reshape([size or -1 for size in op.ints("new_shape")]),)


@interprets(StaticTranspose)
def _transpose(op: StaticTranspose, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].permute(op.ints("perm")),)


@interprets(StaticSlice)
def _slice(op: StaticSlice, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    index = tuple(
        slice(offset, offset + size if size else None)
        for offset, size in zip(op.ints("offsets"), op.ints("sizes"), strict=True)
    )
    return (args[0][index],)


@interprets(StaticConstantPad)
def _pad(op: StaticConstantPad, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    value = cast(torch.Tensor, args[0])
    fill: float = op.number("padding_value", 0.0)
    held = quantization(op.input.type)
    if held is not None:
        fill = float(quantize_shift_then_round(torch.tensor(fill), held))
    amounts: list[int] = []
    pairs = zip(op.ints("pre_paddings"), op.ints("post_paddings"), strict=True)
    for before, after in reversed(list(pairs)):
        amounts += [before, after]
    return (torch.nn.functional.pad(value, amounts, value=fill),)


@interprets(*CONCATENATES.values())
def _concatenate(op: XnnpackOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (torch.cat(list(args), dim=op.integer("axis", 0)),)
