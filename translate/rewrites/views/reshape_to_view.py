"""Spell every reshape as `aten.view.default` with its sizes written out.

`reshape`, `flatten`, `unflatten`, `squeeze`, `unsqueeze`, `view_copy` and the rest all keep the
elements in row-major order and state another shape, so one op says it all. A symbolic size is
written −1, a second one is read from the operand; sizes that a view computes itself stay as they
are.

Before:
    %a = aten.squeeze.dim(%x, 1) : (tensor<2x1x12xf32>) -> tensor<2x12xf32>
    %b = aten.neg.default(%a) : (tensor<2x12xf32>) -> tensor<2x12xf32>
    %c = aten.reshape.default(%b, [-1, 3]) : (tensor<2x12xf32>) -> tensor<8x3xf32>
    %d = aten.neg.default(%c) : (tensor<8x3xf32>) -> tensor<8x3xf32>
    %y = aten.unsqueeze.default(%d, 0) : (tensor<8x3xf32>) -> tensor<1x8x3xf32>
After:
    %a = aten.view.default(%x, [2, 12]) : (tensor<2x1x12xf32>) -> tensor<2x12xf32>
    %b = aten.neg.default(%a) : (tensor<2x12xf32>) -> tensor<2x12xf32>
    %c = aten.view.default(%b, [8, 3]) : (tensor<2x12xf32>) -> tensor<8x3xf32>
    %d = aten.neg.default(%c) : (tensor<8x3xf32>) -> tensor<8x3xf32>
    %y = aten.view.default(%d, [1, 8, 3]) : (tensor<8x3xf32>) -> tensor<1x8x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import Dim
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis, cannot_be_viewed_as, emit_as, view_op


@dataclass(frozen=True)
class Reshape:
    """A change of shape; `sizes` are given where the op states them at run time itself."""

    op: SchemaOp
    sizes: Sequence[int | SSAValue] | None


@dataclass(frozen=True)
class ReshapeToView(Rewrite[Reshape]):
    """Any op that only changes the shape to `aten.view.default`."""

    name: ClassVar[str] = "reshape-to-view"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ViewDefault,
        aten.ViewCopyDefault,
        aten._UnsafeViewDefault,
        aten.ReshapeDefault,
        aten._ReshapeCopyDefault,
        aten.ViewAsDefault,
        aten.ReshapeAsDefault,
        aten.FlattenUsingInts,
        aten.RavelDefault,
        aten.UnflattenInt,
        aten.SqueezeDefault,
        aten.SqueezeDim,
        aten.SqueezeDims,
        aten.SqueezeCopyDefault,
        aten.SqueezeCopyDim,
        aten.SqueezeCopyDims,
        aten.UnsqueezeDefault,
        aten.UnsqueezeCopyDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Reshape | Refusal | None:
        """Every one of these ops qualifies whose sizes can be written down."""
        shape = dims(op.results[0].type)
        if sizes := stated_sizes(op):
            if any(isinstance(size, SSAValue) for size in sizes):
                return None if isinstance(op, aten.ViewDefault) else Reshape(op, sizes)
            if isinstance(op, aten.ViewDefault) and is_written_out(sizes, shape):
                return None
        elif isinstance(op, aten.ViewDefault):
            return None
        return cannot_be_viewed_as(op.operands[0], shape) or Reshape(op, None)

    def build(self, match: Reshape, rw: Rewriter) -> None:
        """Write the view."""
        result, value = match.op.results[0], match.op.operands[0]
        if match.sizes is None:
            new = view_op(rw, value, dims(result.type))
        else:
            new = aten.ViewDefault.make(value, list(match.sizes), result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])


def stated_sizes(op: SchemaOp) -> Sequence[int | SSAValue]:
    """The sizes of the result as an op states them, none where it does not state them all."""
    for name in ("size", "shape"):
        if name in op.SCHEMA.by_name:
            return op.arg(name)
    if not isinstance(op, aten.UnflattenInt):
        return ()
    at = axis(op.arg("dim"), len(dims(op.operands[0].type)))
    kept = [size for i, size in enumerate(dims(op.operands[0].type)) if i != at]
    known: list[int | SSAValue] = [size for size in kept if isinstance(size, int)]
    return [*known[:at], *op.arg("sizes"), *known[at:]] if len(known) == len(kept) else ()


def is_written_out(sizes: Sequence[int | SSAValue], shape: Sequence[Dim]) -> bool:
    """Whether a view states every static size as a number (and one symbolic size as -1)."""
    return all(
        size == dim if isinstance(dim, int) else size == -1
        for size, dim in zip(sizes, shape, strict=True)
    )
