"""`select_scatter` and `slice_scatter`: what is in front of the slice, the new values, what is behind.

Every second element, and the like, is an `index_put` instead.

Before:
    func.func @forward(%x: tensor<2x5xf32>, %s: tensor<2x2xf32>) -> tensor<2x5xf32> {
      %y = aten.slice_scatter.default(%x, %s, 1, 1, 3) : (tensor<2x5xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
      func.return %y : tensor<2x5xf32>
    }
After:
    func.func @forward(%x: tensor<2x5xf32>, %s: tensor<2x2xf32>) -> tensor<2x5xf32> {
      %0 = aten.slice.Tensor(%x, 1, 0, 1, 1) : (tensor<2x5xf32>) -> tensor<2x1xf32>
      %1 = aten.slice.Tensor(%x, 1, 3, 5, 1) : (tensor<2x5xf32>) -> tensor<2x2xf32>
      %y = aten.cat.default([%0, %s, %1], 1) : (tensor<2x1xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
      func.return %y : tensor<2x5xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import cat, emit, slice_axis, static_dims, view


@dataclass(frozen=True)
class Written:
    """Every `step`th element of `[start, stop)` of axis `at` is new."""

    op: SchemaOp
    shape: tuple[int, ...]
    at: int
    start: int
    stop: int
    step: int = 1


@dataclass(frozen=True)
class WriteSliceByCat(Rewrite[Written]):
    """`select_scatter` and `slice_scatter` to slices and `cat`, or to `index_put`."""

    name: ClassVar[str] = "write-slice-by-cat-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.SelectScatterDefault,
        aten.SliceScatterDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Written | Refusal | None:
        """Known sizes and places, of one element type."""
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("the shape is symbolic")
        if element(op.operands[0].type) != element(op.operands[1].type):
            return Refusal("the operands have several dtypes")
        at = op.arg("dim") % len(shape)
        if isinstance(op, aten.SelectScatterDefault):
            if not isinstance(op.arg("index"), int):
                return Refusal("the index is known only at run time")
            start = op.arg("index") % shape[at]
            return Written(op, shape, at, start, start + 1)
        bounds = (op.arg("start"), op.arg("end"), op.arg("step"))
        if not all(bound is None or isinstance(bound, int) for bound in bounds):
            return Refusal("a bound is known only at run time")
        start, stop, step = slice(*bounds).indices(shape[at])
        return Written(op, shape, at, start, max(start, stop), step)

    def build(self, match: Written, rw: Rewriter) -> None:
        """Three parts, or fewer; or the rows that are written."""
        x, at = match.op.operands[0], match.at
        if match.step != 1:
            places = torch.arange(match.start, match.stop, match.step)
            made: list[SSAValue | None] = [*[None] * at, rw.constant(places, "rows")]
            put = aten.IndexPutDefault.make(x, made, match.op.operands[1])
            rw.replace(match.op, [emit(rw, put)])
            return
        shape = list(match.shape)
        shape[at] = match.stop - match.start
        parts = [view(rw, match.op.operands[1], shape)] if shape[at] else []
        if match.start:
            parts.insert(0, slice_axis(rw, x, at, 0, match.start))
        if match.stop < match.shape[at]:
            parts.append(slice_axis(rw, x, at, match.stop, match.shape[at]))
        rw.replace(match.op, [cat(rw, parts, at)])
