"""Ops that move elements: RESHAPE, TRANSPOSE, SLICE, CONCAT, TILE, PAD.

Before:
    %y = aten.permute.default(%x, [1, 0]) : (tensor<2x6xf32>) -> tensor<6x2xf32>
After:
    %y = tosa.transpose %x {perms = array<i32: 1, 0>} : (tensor<2x6xf32>) -> tensor<6x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i32, torch_dtype
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_known


@dataclass(frozen=True)
class LowerReshape(LowerToTosa):
    """`view` to RESHAPE."""

    name: ClassVar[str] = "lower-reshape-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ViewDefault,)
    bound: ClassVar[Bound] = EXACT

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One RESHAPE."""
        return b.reshape(op.operands[0], shape_of(op.results[0]))


@dataclass(frozen=True)
class LowerPermute(LowerToTosa):
    """`permute` to TRANSPOSE."""

    name: ClassVar[str] = "lower-permute-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PermuteDefault,)
    bound: ClassVar[Bound] = EXACT

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One TRANSPOSE."""
        rank = len(shape_of(op.operands[0]))
        return b.transpose(op.operands[0], [axis % rank for axis in op.arg("dims")])


@dataclass(frozen=True)
class LowerSlice(LowerToTosa):
    """`slice` with step 1 to SLICE."""

    name: ClassVar[str] = "lower-slice-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Numbers, step 1."""
        if op.arg("step") != 1:
            return Refusal(f"the step is {op.arg('step')}; SLICE has none")
        if not isinstance(op.arg("start") or 0, int):
            return Refusal("the start is known only at run time")
        return needs_known(op.operands[0], [op.arg("dim")], "the sliced axis of size")

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One SLICE."""
        x, size = op.operands[0], shape_of(op.results[0])
        held = shape_of(x)
        axis = op.arg("dim") % len(held)
        start = op.arg("start") or 0
        start = min(start + held[axis] if start < 0 else start, held[axis])
        starts = [start if i == axis else 0 for i in range(len(held))]
        return b.op(t.SliceOp, [x, b.sizes(starts), b.sizes(size)], size, element(x.type))


@dataclass(frozen=True)
class LowerConcat(LowerToTosa):
    """`cat` to CONCAT."""

    name: ClassVar[str] = "lower-concat-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.CatDefault,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """One element type."""
        if len({element(value.type) for value in op.operands}) > 1:
            return Refusal("the operands have several dtypes")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One CONCAT; of more operands than a list may have, several in a row."""
        shape = shape_of(op.results[0])
        axis, parts = op.arg("dim") % len(shape), list(op.operands)
        while len(parts) > (most := b.level.list):
            parts = [
                b.concat(parts[first : first + most], axis) for first in range(0, len(parts), most)
            ]
        return b.concat(parts, axis, shape)


@dataclass(frozen=True)
class LowerExpand(LowerToTosa):
    """`expand` to TILE."""

    name: ClassVar[str] = "lower-expand-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ExpandDefault,)
    bound: ClassVar[Bound] = EXACT

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One TILE."""
        shape = shape_of(op.results[0])
        x = b.of_rank(op.operands[0], len(shape))
        held = shape_of(x)
        multiples = [1 if n == d else n // d for n, d in zip(shape, held, strict=True)]
        if set(multiples) == {1}:
            return x
        return b.op(t.TileOp, [x, b.sizes(multiples)], shape, element(x.type))


@dataclass(frozen=True)
class LowerPad(LowerToTosa):
    """`constant_pad_nd` to PAD, after a SLICE where a pad is negative."""

    name: ClassVar[str] = "lower-pad-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConstantPadNdDefault,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Numbers that are not negative."""
        if any(not isinstance(n, int) or n < 0 for n in op.arg("pad")):
            return Refusal("the padding is negative, or known only at run time")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One PAD."""
        x, shape = op.operands[0], shape_of(op.results[0])
        pad = op.arg("pad")
        pairs = [list(pad[i : i + 2]) for i in range(0, len(pad), 2)]
        pairs += [[0, 0]] * (len(shape) - len(pairs))
        flat = [n for pair in reversed(pairs) for n in pair]
        held = element(x.type)
        value = b.constant(torch.full([1], op.arg("value"), dtype=torch_dtype(held)))
        return b.op(t.PadOp, [x, b.sizes(flat), value], shape, held)


@dataclass(frozen=True)
class LowerFlip(LowerToTosa):
    """`flip` to one REVERSE an axis."""

    name: ClassVar[str] = "lower-flip-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.FlipDefault,)
    bound: ClassVar[Bound] = EXACT

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The axes, one after the other."""
        y = op.operands[0]
        shape = shape_of(y)
        for axis in sorted(dim % len(shape) for dim in op.arg("dims")):
            y = b.op(t.ReverseOp, [y], shape, element(y.type), axis=IntegerAttr(axis, i32))
        return y
