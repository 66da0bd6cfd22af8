"""StoreRowInTable: the row that one id stands for is one of the table's."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.slices.store_row_in_table import StoreRowInTable

IDS, ROWS = "tensor<2x3xi64>", "tensor<2x3x4xf32>"


def choice(
    place: int = 2, row: str = "tensor<4xf32>", ids: str = "%i", more: str = ""
) -> tuple[str, ...]:
    return (
        '%w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>',
        f'%r = stepwell.weight <"r"> "parameter" : {row}',
        f"%e = aten.embedding.default(%w, %i) : (tensor<4x4xf32>, {IDS}) -> {ROWS}",
        f"%m = aten.eq.Scalar({ids}, {place}) : ({IDS}) -> tensor<2x3xi1>",
        "%v = aten.view.default(%m, [2, 3, 1]) : (tensor<2x3xi1>) -> tensor<2x3x1xi1>",
        f"%y = aten.where.self(%v, %r, %e) : (tensor<2x3x1xi1>, {row}, {ROWS}) -> {ROWS}",
        more,
    )


def test_a_row_of_any_numbers_is_looked_up_to_the_bit():
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.row = nn.Parameter(torch.tensor([torch.nan, torch.inf, -0.0, 1.0]))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.where((ids == 3).unsqueeze(-1), self.row, self.table(ids))

    ids, model = torch.tensor([[0, 3, 4, 3]]), Text().eval()
    lowered = stepwell.lower(export(model, (ids,)), "xnnpack")
    assert dict(lowered.report.outside) == {"aten.embedding.default": 1}
    (found,) = lowered.run(ids)
    assert torch.equal(found.view(torch.int32), model(ids).view(torch.int32))


@pytest.mark.parametrize("place", [4, -1])
def test_an_id_that_the_table_has_no_row_for_is_refused(place: int, refused: Any, method: Any):
    text = method(f"%i: {IDS}", *choice(place), gives=ROWS)
    refused(text, StoreRowInTable(), "the table has no row")


@pytest.mark.parametrize("row", ["tensor<1xf32>", "tensor<3x4xf32>"])
def test_what_is_no_row_of_the_table_is_refused(row: str, refused: Any, method: Any):
    refused(method(f"%i: {IDS}", *choice(row=row), gives=ROWS), StoreRowInTable(), "no row")


test_store_row_in_table = cases(
    StoreRowInTable,
    """
other ids than those looked up stay -> applied 0 times
    %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3])
    %m = aten.eq.Scalar(%j: i64[2, 3], 2)
    %v = aten.view.default(%m, [2, 3, 1])
    %y = aten.where.self(%v, %r: weight f32[4], %e)
a table that is read elsewhere -> refused: held twice
    %e = aten.embedding.default(%w: weight f32[4, 4], %i: i64[2, 3])
    %m = aten.eq.Scalar(%i, 2)
    %v = aten.view.default(%m, [2, 3, 1])
    %y = aten.where.self(%v, %r: weight f32[4], %e)
    %z = aten.neg.default(%w)
    return %y
""",
)
