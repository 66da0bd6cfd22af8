"""`as_strided` by rows of its operand's memory, where that is known to be row-major.

What `as_strided` reads hangs on strides, which are no part of the IR: those of a transposed value are
not its shape's. It becomes an `index_select` only of a value that provably lies row by row, and is
refused else.

Before:
    %y = aten.as_strided.default(%x, [3, 2], [2, 1], 2) : (tensor<2x4xf32>) -> tensor<3x2xf32>
After:
    %0 = aten.view.default(%x, [4, 2]) : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %y = aten.index_select.default(%0, 0, dense<[1, 2, 3]>) : (tensor<4x2xf32>, tensor<3xi64>) -> tensor<3x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import element_count, emit, static_dims, view
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES, longest_run, places
from stepwell.translate.rewrites.views.as_strided_to_view import is_row_major


@dataclass(frozen=True)
class Strided:
    """An `as_strided` of row-major memory, and its shapes."""

    op: SchemaOp
    held: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True)
class GatherStrides(Rewrite[Strided]):
    """`as_strided` to views and an `index_select`."""

    name: ClassVar[str] = "gather-strides"
    formerly: ClassVar[tuple[str, ...]] = ("gather-strides-to-tosa",)
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AsStridedDefault,
        aten.AsStridedCopyDefault,
    )
    takes_empty: ClassVar[bool] = False

    def match(self, op: SchemaOp, program: Program) -> Strided | Refusal | None:
        """Known sizes, strides and offset of row-major memory, not too many elements."""
        held, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if held is None or made is None:
            return Refusal("the shape is symbolic")
        if len(op.operands) > 1:
            return Refusal("a size, a stride or the offset is known only at run time")
        if not is_row_major(op.operands[0], program):
            return Refusal("the memory format of the operand is not known to be row-major")
        if element_count(made) > MOST_PLACES:
            return Refusal(f"its {element_count(made)} places would be a constant that large")
        return Strided(op, held, made)

    def build(self, match: Strided, rw: Rewriter) -> None:
        """Runs of neighbours are one row."""
        pattern, count = places(match.op), element_count(match.held)
        run = longest_run(pattern, count)
        rows = view(rw, match.op.operands[0], (count // run, run))
        index = rw.constant((pattern[::run] // run).contiguous(), "rows")
        chosen = emit(rw, aten.IndexSelectDefault.make(rows, 0, index))
        rw.replace(match.op, [view(rw, chosen, match.made)])
