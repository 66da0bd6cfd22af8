"""Constant folding: store a row that is selected for one id in the table that ids index.

A model with a separate row for the start of a sequence selects it over a look-up, `where(ids == 96,
row, table[ids])`. A table with that row at index 96 gives the same result, to the bit, and nothing
is selected at run time.

rule store-row-in-table
    `where(ids == place, row, embedding(table, ids))` to a look-up in another table.
Before:
    %t = weight : $T
    %r = weight : $R
    %e = aten.embedding.default(%t, %i, …)
    %y = aten.where.self(%c, %r, %e)
After:
    %s = weight row-in-table(%t, %r, place=$place)
    %y = aten.embedding.default(%s, %i)
with $compared = number_compared(%c, %i)
where are_of_one_type(%e, %y)
    else "the row has another dtype than the table, or is broadcast with it"
where is_row(%r, %t) else "what is chosen is no row of the table"
with $place = place_in(%t, $compared)
where is_read_here_alone(%e, %t) for cost else "the table is read elsewhere too, and would be held twice"
for %m = aten.eq.Scalar(%i, 2)
for %c = aten.view.default(%m, [2, 3, 1])
for %i = "tensor<2x3xi64>", $T = "tensor<4x4xf32>", $R = "tensor<4xf32>"
not for %r = "r#counted", $R = "tensor<3x4xf32>"
not for $R = "tensor<4xf64>"
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.rules import read_rules


@recipe("row-in-table")
def row_in_table(table: torch.Tensor, row: torch.Tensor, *, place: int) -> torch.Tensor:
    """Return the table with one of its rows replaced."""
    stored = table.clone(memory_format=torch.contiguous_format)
    stored[place] = row.reshape(-1)
    return stored


def number_compared(condition: SSAValue, ids: SSAValue) -> Iterable[Any] | None:
    """Return the number with which ids are compared across a unit axis, as a list; else None."""
    compared = compared_ids(condition)
    if compared is None or compared.operands[0] is not ids:
        return None
    return [compared.arg("other")]


def is_row(row: SSAValue, table: SSAValue) -> bool:
    """Whether the tensor has the width of a table and only axes of size one besides."""
    *ones, width = dims(row.type) or (1,)
    return all(size == 1 for size in ones) and width == dims(table.type)[1]


def place_in(table: SSAValue, number: list[Any]) -> int | Refusal:
    """Return the index of the table's row for a number."""
    rows, (place,) = dims(table.type)[0], number
    if isinstance(rows, int) and isinstance(place, int) and 0 <= place < rows:
        return place
    return Refusal("the table has no row for the number with which ids are compared")


def is_read_here_alone(look_up: SSAValue, table: SSAValue, program: Program) -> bool:
    """Whether the look-up has one reader, and its table has no other reader."""
    key = weight_key(table)
    return key is not None and look_up.has_one_use() and len(readers(key, program)) == 1


def compared_ids(condition: SSAValue) -> SchemaOp | None:
    """Return the comparison of ids with a number, through an added unit axis; else None."""
    shape = dims(condition.type)
    while isinstance(owner := condition.owner, aten.ViewDefault | aten.UnsqueezeDefault):
        condition = owner.operands[0]
    owner = condition.owner
    is_of_rows = shape == (*dims(condition.type), 1)
    return owner if isinstance(owner, aten.EqScalar) and is_of_rows else None


def readers(key: str, program: Program) -> list[Operation]:
    """Return the ops that read a weight, in all methods."""
    return [
        use.operation
        for op in program.module.walk()
        for result in op.results
        if weight_key(result) == key
        for use in result.uses
    ]


(StoreRowInTable,) = RULES = read_rules(__doc__, globals())
