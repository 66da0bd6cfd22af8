"""Semantics of data movement operators: reshape, transpose, gather, pad, resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import (
    BlockScaled,
    ints,
    is_integer,
    narrow,
    result_element,
    wide,
)
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.diagnostics import StepwellError, describe_op

Args = Sequence[Any]


def _bits(x: Tensor) -> Tensor:
    """View fp8 as uint8, because torch has few data movement kernels for fp8."""
    return x.view(torch.uint8) if x.dtype.is_floating_point and x.dtype.itemsize == 1 else x


def _of_dtype(moved: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert integers that `_bits` returned back to the original dtype."""
    return moved if moved.dtype == dtype else moved.view(dtype)


@interprets(t.ReshapeOp)
def _reshape(op: t.ReshapeOp, args: Args, ctx: Interpreter) -> Args:
    x, shape = args
    if isinstance(x, BlockScaled):  # Blocks run along the last axis and stay whole.
        blocks = (*shape[:-1], shape[-1] // (x.codes.shape[-1] // x.scales.shape[-1]))
        return (BlockScaled(x.codes.reshape(shape), x.scales.reshape(blocks), x.payload),)
    return (x.reshape(shape),)


@interprets(t.TransposeOp)
def _transpose(op: t.TransposeOp, args: Args, ctx: Interpreter) -> Args:
    return (args[0].permute(ints(op.perms)).contiguous(),)


@interprets(t.ConcatOp)
def _concat(op: t.ConcatOp, args: Args, ctx: Interpreter) -> Args:
    axis = op.axis.value.data
    if isinstance(args[0], BlockScaled):
        codes = torch.cat([a.codes for a in args], axis)
        return (BlockScaled(codes, torch.cat([a.scales for a in args], axis), args[0].payload),)
    return (_of_dtype(torch.cat([_bits(a) for a in args], axis), args[0].dtype),)


@interprets(t.ReverseOp)
def _reverse(op: t.ReverseOp, args: Args, ctx: Interpreter) -> Args:
    return (_of_dtype(_bits(args[0]).flip(op.axis.value.data), args[0].dtype),)


@interprets(t.SliceOp)
def _slice(op: t.SliceOp, args: Args, ctx: Interpreter) -> Args:
    x, start, size = args
    windows = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
    return (x[windows].contiguous(),)


@interprets(t.TileOp)
def _tile(op: t.TileOp, args: Args, ctx: Interpreter) -> Args:
    return (_of_dtype(_bits(args[0]).repeat(args[1]), args[0].dtype) if args[1] else args[0],)


@interprets(t.PadOp)
def _pad(op: t.PadOp, args: Args, ctx: Interpreter) -> Args:
    x, padding, value = args
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)]
    flat = [n for pair in reversed(pairs) for n in pair]
    filled = _bits(value).reshape(-1)[0].item()
    return (_of_dtype(torch.constant_pad_nd(_bits(x), flat, filled), x.dtype),)


def _in_range(indices: Tensor, size: int) -> Tensor:
    """Return indices as int64, checked to be in range: TOSA has no negative indices."""
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise IndexError(f"an index is out of range for {size} rows")
    return indices.to(torch.int64)


@interprets(t.GatherOp)
def _gather(op: t.GatherOp, args: Args, ctx: Interpreter) -> Args:
    values, indices = args
    rows = torch.arange(values.shape[0]).unsqueeze(1)
    places = _in_range(indices, values.shape[1])
    return (_of_dtype(_bits(values)[rows, places], values.dtype),)


def gather_rows(values: Tensor, indices: Tensor, count: int) -> Tensor:
    """Gather rows `i … i + count - 1` of `[N, K, C]` for each index of `[N, W]`: `[N, W * count,
    C]`.
    """
    wanted = indices.to(torch.int64).unsqueeze(-1) + torch.arange(count)
    rows = torch.arange(values.shape[0]).unsqueeze(1)
    return _of_dtype(
        _bits(values)[rows, _in_range(wanted.flatten(1), values.shape[1])], values.dtype
    )


@interprets(t.RowGatherOp)
def _row_gather(op: t.RowGatherOp, args: Args, ctx: Interpreter) -> Args:
    values, indices, count = args
    if isinstance(values, BlockScaled):
        codes, scales = (gather_rows(x, indices, int(count)) for x in (values.codes, values.scales))
        return (BlockScaled(codes, scales, values.payload),)
    return (gather_rows(values, indices, int(count)),)


@interprets(t.RowGatherBlockScaledOp)
def _row_gather_block_scaled(op: t.RowGatherBlockScaledOp, args: Args, ctx: Interpreter) -> Args:
    *values, indices, count = args
    return tuple(gather_rows(x, indices, int(count)) for x in values)


@interprets(t.ScatterOp)
def _scatter(op: t.ScatterOp, args: Args, ctx: Interpreter) -> Args:
    values, indices, source = args
    result = _bits(values).clone()
    rows = torch.arange(values.shape[0]).unsqueeze(1)
    result[rows, _in_range(indices, values.shape[1])] = _bits(source)
    return (_of_dtype(result, values.dtype),)


def _places(size: int, n: int, d: int, o: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each resized element's source position: the integer part, and the rest in n-ths."""
    position = torch.arange(((size - 1) * n - o + b) // d + 1) * d + o
    return torch.div(position, n, rounding_mode="floor"), position % n


def _nearest(
    x: torch.Tensor, scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> torch.Tensor:
    """Sample the nearest elements along axes 1 and 2."""
    for axis, n, d, o, b in zip((1, 2), scale[0::2], scale[1::2], offset, border, strict=True):
        whole, part = _places(x.shape[axis], n, d, o, b)
        x = x.index_select(axis, (whole + (2 * part >= n)).clamp(0, x.shape[axis] - 1))
    return x


@interprets(t.ResizeOp)
def _resize(op: t.ResizeOp, args: Args, ctx: Interpreter) -> Args:
    x, scale, offset, border = args
    if isinstance(x, BlockScaled):
        if op.mode.data != "NEAREST_NEIGHBOR":
            raise StepwellError(
                "tosa.resize: block-scaled tensors are resized to their nearest elements only",
                describe_op(op),
            )
        codes, scales = (_nearest(part, scale, offset, border) for part in (x.codes, x.scales))
        return (BlockScaled(codes, scales, x.payload),)
    if op.mode.data == "NEAREST_NEIGHBOR":
        return (_of_dtype(_nearest(_bits(x), scale, offset, border), x.dtype),)
    integer = is_integer(result_element(op))
    x = wide(x).to(torch.int64) if integer else wide(x)
    for axis, (n, d, o, b) in enumerate(
        zip(scale[0::2], scale[1::2], offset, border, strict=True), start=1
    ):
        whole, part = _places(x.shape[axis], n, d, o, b)
        lower = x.index_select(axis, whole.clamp(0, x.shape[axis] - 1))
        upper = x.index_select(axis, (whole + 1).clamp(0, x.shape[axis] - 1))
        part = part.reshape([-1 if i == axis else 1 for i in range(x.dim())])
        if integer:
            x = lower * (n - part) + upper * part
        else:
            fraction = part.to(torch.float32) / n
            x = lower * (1 - fraction) + upper * fraction
    return (narrow(x, op),)
