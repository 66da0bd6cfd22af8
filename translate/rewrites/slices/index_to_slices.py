"""Spell a selection by constant indices as slices, where the indices run in a few sequences.

`roll` decomposes to `index_select` with indices that wrap around once; taking every channel of
half a tensor is one run. Indices are read from the weight; other selections stay a gather.

Before:
    %i = stepwell.weight <"#rolled"> "constant" : tensor<4xi64>
    %y = aten.index_select.default(%x, 1, %i) : (tensor<2x4xf32>, tensor<4xi64>) -> tensor<2x4xf32>
After:
    %0 = aten.slice.Tensor(%x, 1, 3, 4, 1) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %1 = aten.slice.Tensor(%x, 1, 0, 3, 1) : (tensor<2x4xf32>) -> tensor<2x3xf32>
    %y = aten.cat.default([%0, %1], 1) : (tensor<2x1xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis, cat, static_dims
from stepwell.translate.rewrites.slices.picking import runs_of, slices


@dataclass(frozen=True)
class Selected:
    """Elements `[start, stop)` of axis `at`, for each run one after the other."""

    op: SchemaOp
    at: int
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class IndexToSlices(Rewrite[Selected]):
    """`index_select` and `index` by a constant vector to slices and a cat."""

    most_runs: int = 4
    name: ClassVar[str] = "index-to-slices"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.IndexSelectDefault, aten.IndexTensor)

    def match(self, op: SchemaOp, program: Program) -> Selected | Refusal | None:
        """Guards: one constant vector of integers, a static axis, few runs."""
        held = static_dims(op.operands[0])
        at, index = indexed_axis(op)
        if index is None or (key := weight_key(index)) is None:
            return None
        if held is None or len(dims(index.type)) != 1:
            return Refusal("the shape is symbolic, or the indices are not a vector")
        numbers = program.weights.get(key)
        if numbers.dtype.itemsize == 1:
            return Refusal("a mask selects the elements, not indices")
        runs = runs_of([axis(int(n), held[at]) for n in numbers.tolist()])
        if not 0 < len(runs) <= self.most_runs:
            return Refusal(
                f"the indices form {len(runs)} runs: a gather costs less than that many slices"
            )
        return Selected(op, at, tuple(runs))

    def build(self, match: Selected, rw: Rewriter) -> None:
        """Write a slice a run, and the cat."""
        value = match.op.operands[0]
        rw.replace(match.op, [cat(rw, slices(rw, value, match.at, match.runs), match.at)])


def indexed_axis(op: SchemaOp) -> tuple[int, SSAValue | None]:
    """The axis that is selected from, and the indices; None if there are several."""
    if isinstance(op, aten.IndexSelectDefault):
        return axis(op.arg("dim"), max(len(dims(op.operands[0].type)), 1)), op.operands[1]
    given = [(at, index) for at, index in enumerate(op.arg("indices")) if index is not None]
    return given[0] if len(given) == 1 else (0, None)
