"""Store the row that one id stands for in the table that ids look up.

A model whose start of sequence is a row of its own chooses it over a look-up, `where(ids == 96, row,
table[ids])`: a table with that row in place 96 gives the same, to the bit, and nothing is chosen at
run time.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>
    %r = stepwell.weight <"r"> "parameter" : tensor<4xf32>
    %e = aten.embedding.default(%w, %i) : (tensor<4x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    %m = aten.eq.Scalar(%i, 2) : (tensor<2x3xi64>) -> tensor<2x3xi1>
    %v = aten.view.default(%m, [2, 3, 1]) : (tensor<2x3xi1>) -> tensor<2x3x1xi1>
    %y = aten.where.self(%v, %r, %e) : (tensor<2x3x1xi1>, tensor<4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
After:
    %0 = stepwell.weight <"w#row-in-table.000000000000"> "constant" : tensor<4x4xf32>
    %y = aten.embedding.default(%0, %i) : (tensor<4x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import emit
from stepwell.translate.rewrites.constants.recipes import derive


@recipe("row-in-table")
def row_in_table(table: torch.Tensor, row: torch.Tensor, *, place: int) -> torch.Tensor:
    """The table with a row in the place of one of its own."""
    stored = table.clone(memory_format=torch.contiguous_format)
    stored[place] = row.reshape(-1)
    return stored


@dataclass(frozen=True)
class ChosenRow:
    """A look-up, and the row that is taken instead where the id is `place`."""

    op: SchemaOp
    table: str
    row: str
    ids: SSAValue
    place: int


@dataclass(frozen=True)
class StoreRowInTable(Rewrite[ChosenRow]):
    """`where(ids == place, row, embedding(table, ids))` to a look-up in another table."""

    name: ClassVar[str] = "store-row-in-table"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.WhereSelf,)

    def match(self, op: SchemaOp, program: Program) -> ChosenRow | Refusal | None:
        """Guards: one look-up by the ids that are compared, a row of its table, no other reader."""
        condition, chosen, looked_up = op.operands
        look_up, row = looked_up.owner, weight_key(chosen)
        compared = compared_ids(condition)
        if not isinstance(look_up, aten.EmbeddingDefault) or compared is None or row is None:
            return None
        table, ids = look_up.operands
        key = weight_key(table)
        if key is None or compared.operands[0] is not ids:
            return None
        if looked_up.type != op.results[0].type or element(chosen.type) != element(table.type):
            return Refusal("the row has another dtype than the table, or is broadcast with it")
        *ones, width = dims(chosen.type) or (1,)
        if any(size != 1 for size in ones) or width != dims(table.type)[1]:
            return Refusal("what is chosen is no row of the table")
        rows, place = dims(table.type)[0], compared.arg("other")
        if not isinstance(rows, int) or not isinstance(place, int) or not 0 <= place < rows:
            return Refusal("the table has no row for the number that ids are compared with")
        if not looked_up.has_one_use() or len(readers(key, program)) > 1:
            return Refusal("the table is read elsewhere too, and would be held twice")
        return ChosenRow(op, key, row, ids, place)

    def build(self, match: ChosenRow, rw: Rewriter) -> None:
        """A look-up in the derived table."""
        table = derive(rw, "row-in-table", [match.table, match.row], place=match.place)
        rw.replace(match.op, [emit(rw, aten.EmbeddingDefault.make(table, match.ids))])


def compared_ids(condition: SSAValue) -> SchemaOp | None:
    """The comparison with a number behind an axis of size one for the row, or None."""
    shape = dims(condition.type)
    while isinstance(owner := condition.owner, aten.ViewDefault | aten.UnsqueezeDefault):
        condition = owner.operands[0]
    owner = condition.owner
    is_of_rows = shape == (*dims(condition.type), 1)
    return owner if isinstance(owner, aten.EqScalar) and is_of_rows else None


def readers(key: str, program: Program) -> list[Operation]:
    """The ops that read a weight, in all methods."""
    return [
        use.operation
        for op in program.module.walk()
        for result in op.results
        if weight_key(result) == key
        for use in result.uses
    ]
