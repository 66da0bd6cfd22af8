"""LogcumsumexpToSteps: running sums of exponentials whose tails are not lost."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

import stepwell
from stepwell.ir.declared.numerics import NUMERICS


class Running(nn.Module):
    """Running sums of exponentials of what is known to be finite."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Tensor) -> Tensor:
        return (100 * x.tanh()).logcumsumexp(self.at)


@pytest.mark.parametrize(("shape", "at"), [((3, 7), -1), ((16, 4), 0), ((2, 1, 6), 1), ((8,), 0)])
def test_sums_are_pytorchs_though_the_greatest_is_200_above(shape: tuple[int, ...], at: int):
    model, x = Running(at), torch.randn(shape) * 3
    lowered = stepwell.lower(export(model, (x,)), "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    wanted = (100 * x.tanh()).double().logcumsumexp(at)
    torch.testing.assert_close(lowered.run(x)[0].double(), wanted, rtol=2e-6, atol=1e-5)


def test_the_batch_may_be_open():
    model, shapes = Running(1), ({0: Dim("b", min=1, max=8)},)
    program = export(model, (torch.randn(3, 9),), dynamic_shapes=shapes)
    lowered = stepwell.lower(program, "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for rows in (1, 8):
        x = torch.randn(rows, 9)
        torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=2e-6, atol=1e-5)


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(mask, -torch.inf).logcumsumexp(-1)


def test_minus_infinity_is_left_to_kernels():
    x, mask = torch.randn(2, 6), torch.arange(6).expand(2, 6) < 2
    for numerics in NUMERICS:
        lowered = stepwell.lower(export(Masked(), (x, mask)), "xnnpack", numerics=numerics)
        torch.testing.assert_close(lowered.run(x, mask)[0], Masked()(x, mask))
