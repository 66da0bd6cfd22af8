"""`tril` and `triu`: a choice by a constant mask, or by one that shape operators lay out.

Before:
    %y = aten.tril.default(%x) : (tensor<3x3xf32>) -> tensor<3x3xf32>
After:
    %0 = stepwell.weight <"constant#673a53f07e6a"> "constant" : tensor<3x3xi1>
    %y = tosa.select %0, %x, dense<0.0> : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<1x1xf32>) -> tensor<3x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.size import Dim
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import Lowerable, LowerToTosa
from stepwell.translate.rewrites.tosa.operators.sizes import is_known


@dataclass(frozen=True)
class LowerTriangle(LowerToTosa):
    """`tril` and `triu` to SELECT."""

    name: ClassVar[str] = "lower-triangle-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.TrilDefault, aten.TriuDefault)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """A diagonal that is a number, and a constant that is not too large."""
        found = super().match(op, program)
        if not isinstance(found, Lowerable):
            return found
        rows, columns = shape_of(op.operands[0])[-2:]
        most = level_of(program.context.target).bytes
        if is_known((rows, columns)) and rows * columns > most:
            return Refusal(f"a mask of {rows} × {columns} is above {most} bytes")
        return found

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A diagonal that is a number."""
        if not isinstance(op.arg("diagonal"), int):
            return Refusal("the diagonal is known only at run time")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One SELECT."""
        x, number = op.operands[0], op.arg("diagonal")
        shape = shape_of(x)
        lower = isinstance(op, aten.TrilDefault)
        if is_known(shape[-2:]):
            ones = torch.ones(*shape[-2:], dtype=torch.bool)
            mask = b.constant((ones.tril if lower else ones.triu)(number))
        else:
            rows, columns = shape[-2:]
            mask = triangle(rows, columns, b, number if lower else number - 1)
        mask, zero = b.of_rank(mask, len(shape)), b.splat(0, x)
        kept = (x, zero) if lower or is_known(shape[-2:]) else (zero, x)
        return b.select(mask, *kept)


def triangle(rows: Dim, columns: Dim, b: Builder, diagonal: int = 0) -> SSAValue:
    """Truths `[rows, columns]` on and below a diagonal of a matrix whose sizes the run knows.

    One row, cyclic and longer than a row of the matrix by one: read on and on, it begins one
    further to the left in each row of the matrix. It is true at 0 and at its last `rows` places,
    which stand for -1, -2, …
    """
    first = (max(diagonal, 0), max(-diagonal, 0))
    rows, columns = rows + first[0], columns + first[1]  # Of which another diagonal is a part.
    runs = [(True, 1), (False, columns), (True, rows)]
    parts = [_repeated(b.number(truth, 1, i1), count, b) for truth, count in runs]
    period = rows + columns + 1
    line = _repeated(b.concat(parts, 0), rows, b)
    wide = b.reshape(narrow(line, 0, 0, rows * (period - 1), b), (rows, period - 1))
    shape = (rows - first[0], columns - first[1])
    return b.op(t.SliceOp, [wide, b.sizes(first), b.sizes(shape)], shape, i1)


def _repeated(line: SSAValue, count: Dim, b: Builder) -> SSAValue:
    """A line again and again."""
    if count == 1:
        return line
    shape = (shape_of(line)[0] * count,)
    return b.op(t.TileOp, [line, b.sizes((count,))], shape, element(line.type))
