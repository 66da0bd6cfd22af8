"""Write a slice with a step as a view and a plain slice.

`x[0::2]` of a length-8 axis is column 0 of the axis seen as `[4, 2]`. Swin's patch merging takes
four such slices per stage, LeViT's sub-sampling attention one of an odd axis; XNNPACK and CMSIS-NN
slice with step one only. An axis that is not whole periods long is cut or padded to be: the elements
of the padding are not taken.

Before:
    %y = aten.slice.Tensor(%x, 0, 1, 8, 2) : (tensor<8x3xf32>) -> tensor<4x3xf32>
After:
    %v = aten.view.default(%x, [4, 2, 3]) : (tensor<8x3xf32>) -> tensor<4x2x3xf32>
    %s = aten.slice.Tensor(%v, 1, 1, 2, 1) : (tensor<4x2x3xf32>) -> tensor<4x1x3xf32>
    %y = aten.view.default(%s, [4, 3]) : (tensor<4x1x3xf32>) -> tensor<4x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import axis, emit, slice_axis, static_dims, view


@dataclass(frozen=True)
class StridedSlice:
    """Every `step`-th place of axis `at`, from `start`, `count` of them."""

    op: SchemaOp
    at: int
    start: int
    step: int
    count: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StridedSliceToView(Rewrite[StridedSlice]):
    """`x[start::step]` to `x.view(n, step, …)[:, start]`, with the axis cut or padded to periods."""

    name: ClassVar[str] = "strided-slice-to-view"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor,)

    def match(self, op: SchemaOp, program: Program) -> StridedSlice | Refusal | None:
        """Guards: static shape and bounds, something to take."""
        step = op.arg("step")
        if step == 1:
            return None
        shape = static_dims(op.operands[0])
        if shape is None or not isinstance(step, int):
            return Refusal("the sliced axis or the step is symbolic")
        at = axis(op.arg("dim"), len(shape))
        size = shape[at]
        start, stop = op.arg("start") or 0, op.arg("end")
        if not isinstance(start, int) or not isinstance(stop, int | None):
            return Refusal("a bound is known only at run time")
        start = max(start + size, 0) if start < 0 else start
        stop = size if stop is None else min(stop + size if stop < 0 else stop, size)
        if start >= stop:
            return Refusal("the slice takes nothing")
        return StridedSlice(op, at, start, step, -(-(stop - start) // step), shape)

    def build(self, match: StridedSlice, rw: Rewriter) -> None:
        """Make the axis whole periods, split it, take one place of each, join."""
        shape, at, step, count = match.shape, match.at, match.step, match.count
        value = match.op.operands[0]
        place = match.start
        if count == 1:
            rw.replace(match.op, [slice_axis(rw, value, at, place, place + 1)])
            return
        if shape[at] != count * step or place >= step:
            stop = min(place + count * step, shape[at])
            value = slice_axis(rw, value, at, place, stop)
            missing = place + count * step - stop
            value = _padded(rw, value, at, missing) if missing else value
            place = 0
        split = [*shape[:at], count, step, *shape[at + 1 :]]
        value = slice_axis(rw, view(rw, value, split), at + 1, place, place + 1)
        rw.replace(match.op, [view(rw, value, [*shape[:at], count, *shape[at + 1 :]])])


def _padded(rw: Rewriter, value: SSAValue, at: int, missing: int) -> SSAValue:
    """Elements that no one reads at the end of an axis."""
    shape = list(dims(value.type))
    amounts = [0] * (2 * (len(shape) - at - 1)) + [0, missing]
    shape[at] = sum(d for d in (shape[at], missing) if isinstance(d, int))
    result = tensor(shape, element(value.type))
    return emit(rw, aten.ConstantPadNdDefault.make(value, amounts, 0, result_types=[result]))
