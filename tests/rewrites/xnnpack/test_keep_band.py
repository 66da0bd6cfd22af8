"""KeepBand: what lies outside a band of diagonals stays hidden, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import KeepBand

X, SIX = "tensor<2x3x3xf32>", "tensor<3x3xi1>"


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


def filled(mask: str, value: str = X, more: str = "") -> tuple[str, ...]:
    held = f'%m = stepwell.weight <"{mask}"> "constant" : {SIX}'
    types = f"({value}, {SIX})"
    return held, more, f"%y = aten.masked_fill.Scalar(%x, %m, 0.0) : {types} -> {value}"


def test_a_mask_that_is_no_band_is_refused(refused: Any, method: Any):
    torch.manual_seed(1)
    refused(method(f"%x: {X}", *filled("random"), gives=X), KeepBand(), "no band")


def test_a_value_of_which_nothing_is_kept_is_refused(refused: Any, method: Any):
    line = f"%y = aten.tril.default(%x, -3) : ({X}) -> {X}"
    refused(method(f"%x: {X}", line, gives=X), KeepBand(), "nothing of the value")


def test_a_value_that_its_mask_repeats_is_refused(refused: Any, method: Any):
    row = "tensor<1x3xf32>"
    choice = f"%y = aten.where.ScalarOther(%m, %x, 0.0) : ({SIX}, {row}) -> tensor<3x3xf32>"
    lines = (filled("#causal")[0], choice)
    refused(method(f"%x: {row}", *lines, gives="tensor<3x3xf32>"), KeepBand(), "is broadcast")


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ("tensor<2x3x3xi64>", "not int64"),
        ("tensor<513x16x16xf32>", "above 131072"),
        ('tensor<2x?x3xf32, #stepwell.shape<[2, "s", 3]>>', "symbolic"),
    ],
)
def test_what_is_no_matrix_of_a_few_floats_is_refused(
    of: str, reason: str, refused: Any, method: Any
):
    line = f"%y = aten.tril.default(%x) : ({of}) -> {of}"
    refused(method(f"%x: {of}", line, gives=of), KeepBand(), reason)


def test_a_number_that_a_half_does_not_hold_is_refused(refused: Any, method: Any):
    halves = X.replace("f32", "f16")
    choice = f"%y = aten.where.ScalarOther(%m, %x, 1.0e+30) : ({SIX}, {halves}) -> {halves}"
    lines = (filled("#causal")[0], choice)
    refused(method(f"%x: {halves}", *lines, gives=halves), KeepBand(), "does not fit")


def test_a_mask_of_run_time_stays(apply: Any, method: Any):
    line = f"%y = aten.masked_fill.Scalar(%x, %m, 0.0) : ({X}, {SIX}) -> {X}"
    assert apply(method(f"%x: {X}, %m: {SIX}", line, gives=X), KeepBand()).count == 0
