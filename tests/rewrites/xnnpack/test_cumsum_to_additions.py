"""CumsumToAdditions: places add up what stands before them, and meet nothing else."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.decompositions import scans
from stepwell.translate.lowerings.lowering import step

X = "tensor<2x3xf32>"


class Running(nn.Module):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(self.at)


@pytest.mark.parametrize(("shape", "at"), [((3, 7), -1), ((5, 4), 0), ((2, 1, 6), 1), ((8,), 0)])
def test_integers_add_up_exactly_along_any_axis(shape: tuple[int, ...], at: int):
    x = torch.randint(-9, 9, shape).float()
    lowered = stepwell.lower(export(Running(at), (x,)), "xnnpack")
    assert not lowered.report.outside
    assert torch.equal(lowered.run(x)[0], x.cumsum(at))


def test_the_batch_may_be_open():
    given = torch.randint(-9, 9, (3, 7)).float()
    shapes = ({0: torch.export.Dim("b", min=1, max=8)},)
    lowered = stepwell.lower(export(Running(1), (given,), dynamic_shapes=shapes), "xnnpack")
    assert not lowered.report.outside
    for rows in (1, 3, 8):
        x = torch.randint(-9, 9, (rows, 7)).float()
        assert torch.equal(lowered.run(x)[0], x.cumsum(1))


def test_what_is_not_finite_goes_forwards_only():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[inf, 1, 2, -inf, 0], [0, 1, nan, 2, 3], [0, 0, 0, 0, -inf]])
    lowered = stepwell.lower(export(Running(-1), (x,)), "xnnpack")
    assert lowered.report.delegates == 1
    torch.testing.assert_close(lowered.run(x)[0], x.cumsum(-1), equal_nan=True)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ("tensor<2x3xf16>", "rounds once"),
        ("tensor<2x5000xf32>", "13 additions"),
        ('tensor<2x?xf32, #stepwell.shape<[2, "s"]>>', "symbolic"),
        ("tensor<2x3xi64>", "not int64"),
    ],
)
def test_what_is_no_short_sum_of_singles_stays(of: str, reason: str, refused: Any, method: Any):
    line = f"%y = aten.cumsum.default(%x, -1) : ({of}) -> {of}"
    refused(method(f"%x: {of}", line, gives=of), step(scans.cumsum_to_additions), reason)
