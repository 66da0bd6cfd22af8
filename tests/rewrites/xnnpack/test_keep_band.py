"""KeepBand: what lies outside a band of diagonals stays hidden, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import KeepBand


def band(rows: int, columns: int, low: int, high: int) -> Tensor:
    diagonals = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    return (diagonals >= low) & (diagonals <= high)


class All(nn.Module):
    def __init__(self, *functions: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function in self.functions)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (7, 3), (1, 5), (5, 1)])
def test_numbers_of_all_classes_are_kept_and_hidden_to_the_bit(rows: int, columns: int):
    window, causal = band(rows, columns, -2, 1), band(rows, columns, -9, 0)
    model = All(
        torch.tril,
        lambda x: torch.triu(x, -1),
        lambda x: x.masked_fill(~window, -torch.inf),
        lambda x: torch.where(causal, x, 5.0),
        lambda x: torch.where(~causal, 2.0, x),
    )
    x = torch.randn(2, 3, rows, columns)
    x[0, 0], x[1, 0], x[0, 1], x[1, 1] = torch.nan, torch.inf, -torch.inf, -0.0
    lowered = stepwell.lower(export(model, (x,)), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for found, wanted in zip(lowered.run(x), model(x), strict=True):
        assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))


def test_a_mask_that_is_no_band_is_refused(refused: Any):
    torch.manual_seed(1)
    refused(
        '%y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: constant "random" i1[3, 3], 0.0)',
        KeepBand(),
        "no band",
    )


test_keep_band = cases(
    KeepBand,
    """
a value of which nothing is kept -> refused: nothing of the value
    %y = aten.tril.default(%x: f32[2, 3, 3], -3)
a value that its mask repeats -> refused: is broadcast
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f32[1, 3], 0.0)
what is no matrix of a few floats -> refused: not int64
    %y = aten.tril.default(%x: i64[2, 3, 3])
what is no matrix of a few floats -> refused: above 131072
    %y = aten.tril.default(%x: f32[513, 16, 16])
what is no matrix of a few floats -> refused: symbolic
    %y = aten.tril.default(%x: f32[2, s, 3])
a number that a half does not hold -> refused: does not fit
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f16[2, 3, 3], 1e+30)
a mask of run time stays -> applied 0 times
    %y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: i1[3, 3], 0.0)
""",
)
