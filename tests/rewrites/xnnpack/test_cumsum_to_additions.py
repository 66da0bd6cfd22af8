"""CumsumToAdditions: places add up what stands before them, and meet nothing else."""

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.decompositions import scans


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


test_cumsum_to_additions = cases(
    scans,
    """
cumsum-to-additions: what is no short sum of singles -> refused: rounds once
    %y = aten.cumsum.default(%x: f16[2, 3], -1)
cumsum-to-additions: what is no short sum of singles -> refused: 13 additions
    %y = aten.cumsum.default(%x: f32[2, 5000], -1)
cumsum-to-additions: what is no short sum of singles -> refused: symbolic
    %y = aten.cumsum.default(%x: f32[2, s], -1)
cumsum-to-additions: what is no short sum of singles -> refused: not int64
    %y = aten.cumsum.default(%x: i64[2, 3], -1)
""",
)
