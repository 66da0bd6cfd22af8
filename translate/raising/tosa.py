"""Raising of TOSA operators whose rules are more precise than PyTorch's operators.

The interpreter adds up in the order of TOSA's reference model and calls the C library for
functions, which PyTorch's operators do not. After raising, the order of a sum and the last bit of a
function are unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.symbols import Symbols
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints, narrow, wide
from stepwell.ir.core import WeightOp
from stepwell.ir.weights import WeightStore

Rule = Callable[[Any, Sequence[Any]], Any]
UNARY: dict[type[Operation], Callable[[torch.Tensor], torch.Tensor]] = {
    t.CosOp: torch.cos,
    t.ErfOp: torch.erf,
    t.ExpOp: torch.exp,
    t.LogOp: torch.log,
    t.SigmoidOp: torch.sigmoid,
    t.SinOp: torch.sin,
    t.TanhOp: torch.tanh,
}


def _conv2d(op: t.Conv2dOp, args: Sequence[Any]) -> Any:
    image, kernel = (wide(x).permute(0, 3, 1, 2) for x in args[:2])
    return _filtered(op, image, kernel, args[2], 1)


def _depthwise(op: t.DepthwiseConv2dOp, args: Sequence[Any]) -> Any:
    image, kernel = wide(args[0]).permute(0, 3, 1, 2), wide(args[1])
    height, width, channels, multiplier = kernel.shape
    kernel = kernel.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    return _filtered(op, image, kernel, args[2], channels)


def _filtered(op: Any, image: Any, kernel: Any, bias: Any, groups: int) -> Any:
    top, bottom, left, right = ints(op.pad)
    if (top, left) == (bottom, right):
        padding = (top, left)
    else:
        image, padding = F.pad(image, (left, right, top, bottom)), (0, 0)
    stride, dilation = ints(op.stride), ints(op.dilation)
    bias = wide(bias)
    bias = bias if bias.shape[0] == kernel.shape[0] else bias.expand(kernel.shape[0])
    made = F.conv2d(image, kernel, bias, stride, padding, dilation, groups)
    return narrow(made.permute(0, 2, 3, 1), op)


def _matmul(op: t.MatMulOp, args: Sequence[Any]) -> Any:
    return narrow(torch.matmul(wide(args[0]), wide(args[1])), op)


def _pad(op: t.PadOp, args: Sequence[Any]) -> Any:
    image, padding, value = args
    last_first = [n for at in range(len(padding) - 2, -1, -2) for n in padding[at : at + 2]]
    return torch.constant_pad_nd(image, last_first, value.reshape(-1)[0].item())


def _power(op: t.PowOp, args: Sequence[Any]) -> Any:
    return narrow(torch.pow(wide(args[0]), wide(args[1])), op)


def _gather(op: t.GatherOp, args: Sequence[Any]) -> Any:
    values, indices = args
    if values.shape[0] == 1:
        return F.embedding(indices, values.squeeze(0))
    wanted = indices.to(torch.int64).unsqueeze(-1).expand(*indices.shape, values.shape[2])
    return torch.gather(values, 1, wanted)


_OTHERS: dict[type[Operation], Rule] = {
    t.Conv2dOp: _conv2d,
    t.DepthwiseConv2dOp: _depthwise,
    t.GatherOp: _gather,
    t.MatMulOp: _matmul,
    t.PadOp: _pad,
    t.PowOp: _power,
}


def in_torch(op: Operation) -> Rule | None:
    """Return a function that computes a float operator by PyTorch's operators, if its rule does
    not.
    """
    type_ = op.results[0].type if op.results else None
    operand = op.operands[0].type if op.operands else None
    if not _is_float(type_) or not _is_float(operand):
        return None
    unary = UNARY.get(type(op))
    if unary is not None:
        return lambda op, args: narrow(unary(wide(args[0])), op)
    return _OTHERS.get(type(op))


def _is_float(type_: Any) -> bool:
    return isinstance(type_, TensorType) and str(type_.element_type) in ("f16", "bf16", "f32")


def fake_of(symbols: Symbols, value: SSAValue, weights: WeightStore) -> Any:
    """Return a fake tensor of an operand; a known constant of one number keeps its value."""
    if isinstance(value.owner, WeightOp):
        known = weights.get(value.owner.key.data)
        if known.numel() == 1:
            with symbols.on_fakes():
                return torch.tensor(known.tolist(), dtype=known.dtype)
    return symbols.fake(value.type)
