"""Semantics of operators on shape values, tuples of ints: constants, DIM, arithmetic on sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.diagnostics import StepwellError

Args = Sequence[Any]

BINARY: dict[type[TosaOp], Callable[[int, int], int]] = {
    t.AddShapeOp: lambda a, b: a + b,
    t.SubShapeOp: lambda a, b: a - b,
    t.MulShapeOp: lambda a, b: a * b,
    t.MaxShapeOp: max,
    t.MinShapeOp: min,
    t.ModShapeOp: lambda a, b: a % b,
    t.DivCeilShapeOp: lambda a, b: -(-a // b),
    t.DivFloorShapeOp: lambda a, b: a // b,
}
"""Arithmetic on two sizes."""

UNARY: dict[type[TosaOp], Callable[[int], int]] = {
    t.Exp2ShapeOp: lambda a: 1 << a,
    t.Log2CeilShapeOp: lambda a: (a - 1).bit_length(),
    t.Log2FloorShapeOp: lambda a: a.bit_length() - 1,
}
"""Arithmetic on one size."""


@interprets(t.ConstShapeOp)
def _const_shape(op: t.ConstShapeOp, args: Args, ctx: Interpreter) -> Args:
    return (tuple(int(v) for v in tensor_of_dense(op.values, torch.int64).tolist()),)


@interprets(t.DimOp)
def _dim(op: t.DimOp, args: Args, ctx: Interpreter) -> Args:
    return ((int(args[0].shape[op.axis.value.data]),),)


@interprets(*BINARY)
def _binary(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    function = BINARY[type(op)]
    return (tuple(function(a, b) for a, b in zip(*args, strict=True)),)


@interprets(*UNARY)
def _unary(op: TosaOp, args: Args, ctx: Interpreter) -> Args:
    return (tuple(UNARY[type(op)](a) for a in args[0]),)


@interprets(t.ConcatShapeOp)
def _concat(op: t.ConcatShapeOp, args: Args, ctx: Interpreter) -> Args:
    return (tuple(size for part in args for size in part),)


@interprets(t.SliceShapeOp)
def _slice(op: t.SliceShapeOp, args: Args, ctx: Interpreter) -> Args:
    sizes, start, size = args
    first = int(start)
    return (tuple(sizes[first : first + int(size)]),)


@interprets(t.AssertEqualShapeOp)
def _assert_equal(op: t.AssertEqualShapeOp, args: Args, ctx: Interpreter) -> Args:
    broadcast = bool(op.allow_broadcast.value.data)
    for a, b in zip(*args, strict=True):
        if a != b and not (broadcast and 1 in (a, b)):
            raise StepwellError(f"shapes {list(args[0])} and {list(args[1])} are not equal")
    return ()
