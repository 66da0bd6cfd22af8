"""Write a slice with a step as a view and a plain slice.

`x[0::2]` of a length-8 axis is column 0 of the axis seen as `[4, 2]`. Swin's patch merging takes
four such slices per stage; XNNPACK and CMSIS-NN slice with step one only.

Before:
    func.func @forward(%x: tensor<8x3xf32>) -> tensor<4x3xf32> {
      %y = aten.slice.Tensor(%x, 0, 1, 8, 2) : (tensor<8x3xf32>) -> tensor<4x3xf32>
      func.return %y : tensor<4x3xf32>
    }
After:
    func.func @forward(%x: tensor<8x3xf32>) -> tensor<4x3xf32> {
      %v = aten.view.default(%x, [4, 2, 3]) : (tensor<8x3xf32>) -> tensor<4x2x3xf32>
      %s = aten.slice.Tensor(%v, 1, 1, 2, 1) : (tensor<4x2x3xf32>) -> tensor<4x1x3xf32>
      %y = aten.view.default(%s, [4, 3]) : (tensor<4x1x3xf32>) -> tensor<4x3xf32>
      func.return %y : tensor<4x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.aten.building import axis, slice_axis, static_dims, view


@dataclass(frozen=True)
class StridedSlice:
    """A slice `start::step` of axis `at` whose whole periods cover what it reads."""

    op: SchemaOp
    at: int
    start: int
    step: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StridedSliceToView(Rewrite[StridedSlice]):
    """`x[start::step]` to `x.view(n, step, …)[:, start]` where the step divides the axis."""

    name: ClassVar[str] = "strided-slice-to-view"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)

    def match(self, op: SchemaOp, program: Program) -> StridedSlice | Refusal | None:
        """Guards: static shape and bounds, a step that divides the axis, all periods read."""
        step = op.arg("step")
        if step == 1:
            return None
        shape = static_dims(op.operands[0])
        if shape is None or not isinstance(step, int):
            return Refusal("the sliced axis or the step is symbolic")
        at = axis(op.arg("dim"), len(shape))
        size = shape[at]
        if step < 1 or size % step:
            return Refusal(f"a step of {step} does not divide the axis of {size}")
        start, stop = op.arg("start") or 0, op.arg("end")
        if not isinstance(start, int) or not isinstance(stop, int | None):
            return Refusal("a bound is known only at run time")
        start = start + size if start < 0 else start
        stop = size if stop is None else min(stop + size if stop < 0 else stop, size)
        if not 0 <= start < step or stop <= size - step + start:
            return Refusal(f"{start}:{stop}:{step} leaves out a part of the axis of {size}")
        return StridedSlice(op, at, start, step, shape)

    def build(self, match: StridedSlice, rw: Rewriter) -> None:
        """Split the axis in periods, take one place of each, join."""
        shape, at = match.shape, match.at
        split = [*shape[:at], shape[at] // match.step, match.step, *shape[at + 1 :]]
        value = view(rw, match.op.operands[0], split)
        value = slice_axis(rw, value, at + 1, match.start, match.start + 1)
        kept = [*shape[:at], shape[at] // match.step, *shape[at + 1 :]]
        rw.replace(match.op, [view(rw, value, kept)])
