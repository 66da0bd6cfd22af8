"""Scale, zero point and range of a quantize or dequantize op, from its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.numbers import N, from_tensor
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element


def quantization_of(
    op: SchemaOp, stored: Attribute, program: Program
) -> UniformQuantizedType | Refusal:
    """Return the type of the integers of a (de)quantize op, or why there is none.

    `stored` is the type of the integer tensor.
    """
    is_affine = op.name.startswith("torchao.")
    many = "s" * (op.SCHEMA.by_name.get("scale") is None)
    scale = numbers(op, f"scale{many}", program, float)
    many = "s" * (op.SCHEMA.by_name.get("zero_point") is None)
    zeros = numbers(op, f"zero_point{many}", program, int)
    if isinstance(scale, Refusal):
        return scale
    if isinstance(zeros, Refusal):
        return zeros
    limits = torch.iinfo(torch_dtype(element(stored)))
    low = cast("int | None", op.arg("quant_min"))
    high = cast("int | None", op.arg("quant_max"))
    shape = dims(stored)
    if is_affine:
        blocks, grid, sub_channel = _affine_blocks(op.arg("block_size"), shape)
    elif op.SCHEMA.by_name.get("group_size"):
        size = cast(int, op.arg("group_size"))
        blocks, grid, sub_channel = _affine_blocks([1, size], shape)
    elif op.SCHEMA.by_name.get("axis"):
        axis = cast(int, op.arg("axis")) % len(shape)
        blocks, grid, sub_channel = ((axis, 1),), (len(scale),), False
    else:
        blocks, grid, sub_channel = (), (), False
    if len(zeros) != len(scale):
        zeros = list(zeros or (0,)) * len(scale)
    quantization = Quantization(
        limits.bits,
        limits.min < 0,
        limits.min if low is None else int(low),
        limits.max if high is None else int(high),
        _expressed(op),
        scale,
        zeros,
        blocks,
        grid,
        sub_channel,
    )
    problem = quantization.problem() or quantization.shape_problem(shape)
    return Refusal(problem) if problem is not None else UniformQuantizedType(quantization)


def is_dynamic(op: SchemaOp) -> bool:
    """Whether `choose_qparams` computes the scale and zero point at run time, so that no type can
    contain them.
    """
    return any(
        isinstance(value.owner, SchemaOp) and "choose_qparams" in value.owner.name
        for value in op.operands[1:]
    )


def numbers(op: SchemaOp, name: str, program: Program, kind: type[N]) -> Sequence[N] | Refusal:
    """Return an argument as flat numbers, read from the weight store if it is a constant tensor."""
    value: Any = op.arg(name)
    if value is None:
        return ()
    if isinstance(value, SSAValue):
        key = weight_key(value)
        if key is None:
            return Refusal(f"{name} is computed at run time; a type holds constants")
        return from_tensor(program.weights.get(key), kind)
    if isinstance(value, Sequence):
        return tuple(map(kind, cast(Sequence[float], value)))
    return (kind(value),)


def _expressed(op: SchemaOp) -> AnyFloat:
    for value in (*op.operands[:1], *op.results):
        value_element = element(value.type)
        if isinstance(value_element, AnyFloat):
            return value_element
    return f32


def _affine_blocks(
    block_size: Sequence[int], shape: Sequence[object]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...], bool]:
    """Return the (axis, extent) pairs of torchao's blocks, which state an extent per dimension."""
    blocks: list[tuple[int, int]] = []
    grid: list[int] = []
    for axis, (block, size) in enumerate(zip(block_size, shape, strict=True)):
        if isinstance(size, int) and block != size:
            blocks.append((axis, block))
            grid.append(size // block)
    sub_channel = len(blocks) > 1 or any(block != 1 for _, block in blocks)
    return tuple(blocks), tuple(grid), sub_channel
