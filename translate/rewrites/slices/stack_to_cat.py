"""Spell `stack`, `hstack`, `concat`, … as `aten.cat.default` of views, on a non-negative axis.

Empty parts are left out, among them those of shape [0] that `cat` skips by an old rule of torch's,
so that no target has to know them.

Before:
    %a = aten.stack.default([%x, %y], -1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3x2xf32>
    %b = aten.concat.default([%x, %y], -1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
    func.return %a, %b : tensor<2x3x2xf32>, tensor<2x6xf32>
After:
    %0 = aten.view.default(%x, [2, 3, 1]) : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
    %1 = aten.view.default(%y, [2, 3, 1]) : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
    %a = aten.cat.default([%0, %1], 2) : (tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> tensor<2x3x2xf32>
    %b = aten.cat.default([%x, %y], 1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
    func.return %a, %b : tensor<2x3x2xf32>, tensor<2x6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.rewrites.building import (
    axis,
    become,
    cannot_be_viewed_as,
    same_type,
    view,
)


@dataclass(frozen=True)
class Joined:
    """Each part, seen as `shapes[i]`, one after the other along `at`."""

    op: SchemaOp
    parts: tuple[SSAValue, ...]
    shapes: tuple[tuple[Dim, ...], ...]
    at: int


@dataclass(frozen=True)
class StackToCat(Rewrite[Joined]):
    """Any op that joins tensors along one axis to `aten.cat.default`."""

    name: ClassVar[str] = "stack-to-cat"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.StackDefault,
        aten.CatDefault,
        aten.ConcatDefault,
        aten.ConcatenateDefault,
        aten.HstackDefault,
        aten.VstackDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Joined | Refusal | None:
        """The parts have one dtype; a cat in normal form is left alone."""
        result = op.results[0]
        if any(element(v.type) != element(result.type) for v in op.operands):
            return Refusal("the operands have several dtypes; cast them first")
        found = self._parts(op)
        is_cat = isinstance(op, aten.CatDefault)
        if is_cat and len(found.parts) == 1 and same_type(found.parts[0], result):
            return found
        if is_cat and len(found.parts) == len(op.operands) and op.present().get("dim") == found.at:
            return None
        for part, shape in zip(found.parts, found.shapes, strict=True):
            if (refusal := cannot_be_viewed_as(part, shape)) is not None:
                return refusal
        return found

    def _parts(self, op: SchemaOp) -> Joined:
        rank = len(dims(op.results[0].type))
        if isinstance(op, aten.StackDefault):
            at = axis(op.arg("dim"), rank)
            shapes = [_with_unit(dims(v.type), at) for v in op.operands]
            return Joined(op, tuple(op.operands), tuple(shapes), at)
        if isinstance(op, aten.HstackDefault | aten.VstackDefault):
            vertical = isinstance(op, aten.VstackDefault)
            shapes = [_at_least(dims(v.type), 2 if vertical else 1) for v in op.operands]
            return Joined(op, tuple(op.operands), tuple(shapes), 0 if vertical or rank == 1 else 1)
        at = axis(op.arg("dim"), rank)
        parts = tuple(v for v in op.operands if dims(v.type) != (0,) or rank == 1)
        parts = tuple(v for v in parts if dims(v.type)[at] != 0) or parts[:1]
        return Joined(op, parts, tuple(dims(v.type) for v in parts), at)

    def build(self, match: Joined, rw: Rewriter) -> None:
        """Write the views and the cat; a cat of one part is that part."""
        values = [view(rw, v, s) for v, s in zip(match.parts, match.shapes, strict=True)]
        if len(values) == 1:
            rw.replace(match.op, values)
            return
        become(rw, match.op, aten.CatDefault, values, match.at)


def _with_unit(shape: tuple[Dim, ...], at: int) -> tuple[Dim, ...]:
    return (*shape[:at], 1, *shape[at:])


def _at_least(shape: tuple[Dim, ...], rank: int) -> tuple[Dim, ...]:
    return (1,) * (rank - len(shape)) + shape
