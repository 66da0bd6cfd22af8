"""Spell every transposition as `aten.permute.default` with non-negative axes.

Before:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
      %a = aten.transpose.int(%x, -1, -2) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
      %b = aten.neg.default(%a) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
      %c = aten.movedim.int(%b, 0, 2) : (tensor<2x4x3xf32>) -> tensor<4x3x2xf32>
      %y = aten.neg.default(%c) : (tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
      func.return %y : tensor<4x3x2xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
      %a = aten.permute.default(%x, [0, 2, 1]) : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
      %b = aten.neg.default(%a) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
      %c = aten.permute.default(%b, [1, 2, 0]) : (tensor<2x4x3xf32>) -> tensor<4x3x2xf32>
      %y = aten.neg.default(%c) : (tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
      func.return %y : tensor<4x3x2xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.aten.building import axis, emit_as


@dataclass(frozen=True)
class Transposition:
    """Axis `i` of the result is axis `order[i]` of the operand."""

    op: SchemaOp
    order: tuple[int, ...]


@dataclass(frozen=True)
class TransposeToPermute(Rewrite[Transposition]):
    """Any op that only reorders axes to `aten.permute.default`."""

    name: ClassVar[str] = "transpose-to-permute"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.PermuteDefault,
        aten.PermuteCopyDefault,
        aten.TransposeInt,
        aten.TransposeCopyInt,
        aten.SwapaxesDefault,
        aten.SwapdimsDefault,
        aten.TDefault,
        aten.TCopyDefault,
        aten.NumpyTDefault,
        aten.MTDefault,
        aten.AdjointDefault,
        aten.MovedimInt,
        aten.MovedimIntlist,
        aten.MoveaxisInt,
        aten.MoveaxisIntlist,
    )

    def match(self, op: SchemaOp, program: Program) -> Transposition | Refusal | None:
        """Every one of these ops qualifies but the permute that is in normal form."""
        if conjugates(op):
            return Refusal("the adjoint of a complex tensor conjugates it")
        order = axis_order(op)
        if isinstance(op, aten.PermuteDefault) and list(op.arg("dims")) == list(order):
            return None
        return Transposition(op, order)

    def build(self, match: Transposition, rw: Rewriter) -> None:
        """Write the permute."""
        result = match.op.results[0]
        new = aten.PermuteDefault.make(
            match.op.operands[0], list(match.order), result_types=[result.type]
        )
        rw.replace(match.op, [emit_as(rw, new, result)])


def conjugates(op: SchemaOp) -> bool:
    """Whether the op also conjugates."""
    return (
        isinstance(op, aten.AdjointDefault) and torch_dtype(element(op.operands[0].type)).is_complex
    )


def axis_order(op: SchemaOp) -> tuple[int, ...]:
    """Which operand axis each result axis is."""
    rank = len(dims(op.operands[0].type))
    names = op.SCHEMA.by_name
    if "dims" in names:
        return tuple(axis(d, rank) for d in op.arg("dims"))
    if "source" in names:
        return moved(_listed(op.arg("source")), _listed(op.arg("destination")), rank)
    if isinstance(op, aten.NumpyTDefault):
        return tuple(reversed(range(rank)))
    if "dim0" in names:
        first, second = op.arg("dim0"), op.arg("dim1")
    elif "axis0" in names:
        first, second = op.arg("axis0"), op.arg("axis1")
    else:
        first, second = -1, -2
    return swapped(first, second, rank)


def swapped(first: int, second: int, rank: int) -> tuple[int, ...]:
    """The identity with two axes exchanged; a tensor of rank 0 or 1 keeps its one order."""
    order = list(range(rank))
    if rank > 1:
        a, b = axis(first, rank), axis(second, rank)
        order[a], order[b] = order[b], order[a]
    return tuple(order)


def moved(source: Sequence[int], destination: Sequence[int], rank: int) -> tuple[int, ...]:
    """`torch.movedim`: `source` axes go to `destination`, the others keep their order."""
    order = [-1] * rank
    for start, end in zip(source, destination, strict=True):
        order[axis(end, rank)] = axis(start, rank)
    rest = iter(i for i in range(rank) if i not in order)
    return tuple(i if i >= 0 else next(rest) for i in order)


def _listed(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]
