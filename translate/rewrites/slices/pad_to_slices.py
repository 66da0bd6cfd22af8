"""Spell reflecting, replicating and circular padding as slices side by side.

A reflected border is one slice for each of its rows, a replicated one the outermost row expanded,
a circular one a single slice of the other end. ExecuTorch has kernels for some of these pads and
delegates for none; borders are a few rows wide.

Before:
    %y = aten.pad.default(%x, [2, 1], "reflect") : (tensor<2x5xf32>) -> tensor<2x8xf32>
After:
    %a = aten.slice.Tensor(%x, 1, 2, 3, 1) : (tensor<2x5xf32>) -> tensor<2x1xf32>
    %b = aten.slice.Tensor(%x, 1, 1, 2, 1) : (tensor<2x5xf32>) -> tensor<2x1xf32>
    %c = aten.slice.Tensor(%x, 1, 3, 4, 1) : (tensor<2x5xf32>) -> tensor<2x1xf32>
    %y = aten.cat.default([%a, %b, %x, %c], 1) : (tensor<2x1xf32>, tensor<2x1xf32>, tensor<2x5xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import cat, expand, slice_axis, static_dims

WIDEST_BORDER = 8
"""Rows of a reflected border; a wider one makes more slices than a gather is worth."""

_MODES: dict[type[Operation], str] = {
    aten.ReflectionPad1dDefault: "reflect",
    aten.ReflectionPad2dDefault: "reflect",
    aten.ReflectionPad3dDefault: "reflect",
    aten.ReplicationPad1dDefault: "replicate",
    aten.ReplicationPad2dDefault: "replicate",
    aten.ReplicationPad3dDefault: "replicate",
}


@dataclass(frozen=True)
class Bordered:
    """Rows before and after each of the last axes (last first), taken from the tensor itself."""

    op: SchemaOp
    mode: str
    borders: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PadToSlices(Rewrite[Bordered]):
    """`aten.pad` that repeats elements, and the pads named after it, to slices and `aten.cat`."""

    name: ClassVar[str] = "pad-to-slices"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.PadDefault, *_MODES)

    def match(self, op: SchemaOp, program: Program) -> Bordered | Refusal | None:
        """Guards: static sizes, borders that are numbers, not negative, and narrow."""
        mode = _MODES.get(type(op)) or op.arg("mode")
        if mode == "constant":
            return None
        shape = static_dims(op.operands[0])
        amounts = op.arg("pad" if isinstance(op, aten.PadDefault) else "padding")
        if shape is None or any(isinstance(amount, SSAValue) for amount in amounts):
            return Refusal("the sizes or the padding are known only at run time")
        if min(amounts) < 0:
            return Refusal(f"{mode} padding with a negative amount crops")
        if mode == "reflect" and max(amounts) > WIDEST_BORDER:
            return Refusal(f"a border of {max(amounts)} rows is that many slices")
        pairs = zip(amounts[::2], amounts[1::2], strict=True)
        return Bordered(op, mode, tuple(pairs))

    def build(self, match: Bordered, rw: Rewriter) -> None:
        """One axis after the other: what stands before, the tensor, what stands after."""
        value = match.op.operands[0]
        shape = static_dims(value)
        assert shape is not None
        for index, (before, after) in enumerate(match.borders):
            at = len(shape) - 1 - index
            rows = _BORDERS[match.mode](rw, value, at, before, after)
            value = cat(rw, [*rows[0], value, *rows[1]], at)
        rw.replace(match.op, [value])


_Rows = tuple[list[SSAValue], list[SSAValue]]


def _reflected(rw: Rewriter, value: SSAValue, at: int, before: int, after: int) -> _Rows:
    size = _size(value, at)
    first = [slice_axis(rw, value, at, i, i + 1) for i in range(before, 0, -1)]
    last = [slice_axis(rw, value, at, size - 2 - i, size - 1 - i) for i in range(after)]
    return first, last


def _replicated(rw: Rewriter, value: SSAValue, at: int, before: int, after: int) -> _Rows:
    size = _size(value, at)

    def repeated(row: int, count: int) -> list[SSAValue]:
        if count == 0:
            return []
        edge = slice_axis(rw, value, at, row, row + 1)
        shape = list(static_dims(edge) or ())
        shape[at] = count
        return [expand(rw, edge, shape)]

    return repeated(0, before), repeated(size - 1, after)


def _circular(rw: Rewriter, value: SSAValue, at: int, before: int, after: int) -> _Rows:
    size = _size(value, at)
    first = [slice_axis(rw, value, at, size - before, size)] if before else []
    return first, [slice_axis(rw, value, at, 0, after)] if after else []


def _size(value: SSAValue, at: int) -> int:
    shape = static_dims(value)
    assert shape is not None
    return shape[at]


_BORDERS = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}
