"""Merge reshapes and transposes that follow each other; take those without effect away.

A transpose that moves nothing but axes of size 1 is a reshape.

Before:
    func.func @main(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
      %a = tosa.transpose %x {perms = array<i32: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
      %y = tosa.transpose %a {perms = array<i32: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
      func.return %y : tensor<2x3x4xf32>
    }
After:
    func.func @main(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
      func.return %x : tensor<2x3x4xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.axes import lies_the_same
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.tosa.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.sizes import is_spelled


@dataclass(frozen=True)
class MergedTranspose:
    """`op` is `source` with its axes in `order`."""

    op: t.TransposeOp
    source: SSAValue
    order: tuple[int, ...]


@dataclass(frozen=True)
class MergeTransposes(Rewrite[MergedTranspose]):
    """A transpose of a transpose to one, to a reshape, or to none."""

    name: ClassVar[str] = "merge-transposes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.TransposeOp,)

    def match(self, op: t.TransposeOp, program: Program) -> MergedTranspose | Refusal | None:
        """A producer that transposes too, a constant, or an order that moves nothing."""
        source, order = op.input, tuple(ints(op.perms))
        if not is_spelled(source):
            return Refusal("the shape is not known")
        inner = source.owner
        if isinstance(inner, t.TransposeOp):
            first = ints(inner.perms)
            return MergedTranspose(op, inner.input, tuple(first[axis] for axis in order))
        if lies_the_same(shape_of(source), order) or weight_key(source) is not None:
            return MergedTranspose(op, source, order)
        return None

    def build(self, match: MergedTranspose, rw: Rewriter) -> None:
        """The one transpose, or the reshape that it is."""
        rw.replace(match.op, [transposed(match.source, match.order, Builder(rw))])


def transposed(value: SSAValue, order: Sequence[int], b: Builder) -> SSAValue:
    """A transpose, as a reshape where it is one."""
    shape = shape_of(value)
    if lies_the_same(shape, order):
        return b.reshape(value, [shape[axis] for axis in order])
    return b.transpose(value, order)


@dataclass(frozen=True)
class MergedReshape:
    """`op` is a reshape of `source`."""

    op: t.ReshapeOp
    source: SSAValue


@dataclass(frozen=True)
class MergeReshapes(Rewrite[MergedReshape]):
    """A reshape of a reshape to one; one to the same shape to none."""

    name: ClassVar[str] = "merge-reshapes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.ReshapeOp,)

    def match(self, op: t.ReshapeOp, program: Program) -> MergedReshape | Refusal | None:
        """A known shape, and a producer that reshapes too, a constant, or the same shape."""
        if not is_spelled(op.output):
            return Refusal("the shape is not known")
        source = op.input1
        inner = source.owner
        if isinstance(inner, t.ReshapeOp) and is_spelled(inner.input1):
            return MergedReshape(op, inner.input1)
        if op.output.type == source.type or weight_key(source) is not None:
            return MergedReshape(op, source)
        return None

    def build(self, match: MergedReshape, rw: Rewriter) -> None:
        """The one reshape."""
        shape = shape_of(match.op.output)
        rw.replace(match.op, [Builder(rw).reshape(match.source, shape)])
