"""Spell slices, narrows and selections one way: `aten.slice.Tensor` with every bound a number.

`select` is a slice of length 1 and a view that drops the axis. Bounds count from the front and lie
inside the axis. On a symbolic axis an index from the front, and the last element, are provable.

Before:
    %a = aten.slice.Tensor(%x, -2, -2) : (tensor<4x6xf32>) -> tensor<2x6xf32>
    %b = aten.select.int(%x, 1, -1) : (tensor<4x6xf32>) -> tensor<4xf32>
    func.return %a, %b : tensor<2x6xf32>, tensor<4xf32>
After:
    %a = aten.slice.Tensor(%x, 0, 2, 4, 1) : (tensor<4x6xf32>) -> tensor<2x6xf32>
    %0 = aten.slice.Tensor(%x, 1, 5, 6, 1) : (tensor<4x6xf32>) -> tensor<4x1xf32>
    %b = aten.view.default(%0, [4]) : (tensor<4x1xf32>) -> tensor<4xf32>
    func.return %a, %b : tensor<2x6xf32>, tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.size import Size
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import (
    TO_THE_END,
    axis,
    cannot_be_viewed_as,
    emit,
    emit_as,
    view_op,
)


@dataclass(frozen=True)
class Sliced:
    """`op` takes `[start:stop:step]` of an axis and, if `drops`, drops that axis."""

    op: SchemaOp
    at: int
    start: int
    stop: int
    step: int
    length: Dim
    drops: bool = False


@dataclass(frozen=True)
class NormaliseSlice(Rewrite[Sliced]):
    """`slice`, `narrow` and `select` to `aten.slice.Tensor` (and a view)."""

    name: ClassVar[str] = "normalise-slice"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.SliceTensor,
        aten.SliceCopyTensor,
        aten.NarrowDefault,
        aten.NarrowCopyDefault,
        aten.SelectInt,
        aten.SelectCopyInt,
    )

    def match(self, op: SchemaOp, program: Program) -> Sliced | Refusal | None:
        """Every one of these ops qualifies whose bounds are numbers."""
        held = dims(op.operands[0].type)
        at = axis(op.arg("dim"), len(held))
        size = held[at]
        found = (
            self._selected(op, at, size)
            if isinstance(op, aten.SelectInt | aten.SelectCopyInt)
            else self._ranged(op, at, size)
        )
        if isinstance(found, Sliced) and isinstance(op, aten.SliceTensor):
            stated = [op.present().get(n) for n in ("dim", "start", "end", "step")]
            if stated == [found.at, found.start, found.stop, found.step]:
                return None
        return found

    def _selected(self, op: SchemaOp, at: int, size: Dim) -> Sliced | Refusal:
        index = op.arg("index")
        if isinstance(index, SSAValue):
            return Refusal("the index is known only at run time")
        if index < 0 and isinstance(size, Size):
            if index != -1:
                return Refusal(
                    f"index {index} counts from the end of an axis of the symbolic size {size}"
                )
            start, stop = -1, TO_THE_END
        else:
            start = index + size if index < 0 and isinstance(size, int) else index
            stop = start + 1
        shape = list(dims(op.operands[0].type))
        del shape[at]
        if (refusal := cannot_be_viewed_as(op.operands[0], shape)) is not None:
            return refusal
        return Sliced(op, at, start, stop, 1, 1, drops=True)

    def _ranged(self, op: SchemaOp, at: int, size: Dim) -> Sliced | Refusal:
        length = dims(op.results[0].type)[at]
        if "length" in op.SCHEMA.by_name:
            start = op.arg("start")
            if isinstance(start, SSAValue) or isinstance(op.arg("length"), SSAValue):
                return Refusal("the bounds are known only at run time")
            if start < 0 and not isinstance(size, int):
                return Refusal(
                    f"the start {start} counts from the end of an axis of the symbolic size {size}"
                )
            start = start + size if start < 0 and isinstance(size, int) else start
            return Sliced(op, at, start, start + op.arg("length"), 1, length)
        start, stop, step = op.arg("start"), op.arg("end"), op.arg("step")
        if any(isinstance(bound, SSAValue) for bound in (start, stop, step)):
            return Refusal("the bounds are known only at run time")
        start = 0 if start is None else start
        stop = TO_THE_END if stop is None else stop
        if isinstance(size, int):
            start, stop, step = range(size)[start:stop:step].start, stop, step
            stop = slice(None, stop).indices(size)[1]
            stop = max(start, stop)
        return Sliced(op, at, start, stop, step, length)

    def build(self, match: Sliced, rw: Rewriter) -> None:
        """Write the slice, and the view behind a selection."""
        value, result = match.op.operands[0], match.op.results[0]
        held = dims(value.type)
        if match.drops and held[match.at] == 1:
            rw.replace(match.op, [emit_as(rw, view_op(rw, value, dims(result.type)), result)])
            return
        shape = [*held[: match.at], match.length, *held[match.at + 1 :]]
        new = aten.SliceTensor.make(
            value,
            match.at,
            match.start,
            match.stop,
            match.step,
            result_types=[tensor(shape, element(value.type))],
        )
        if match.drops:
            new = view_op(rw, emit(rw, new), dims(result.type))
        rw.replace(match.op, [emit_as(rw, new, result)])
