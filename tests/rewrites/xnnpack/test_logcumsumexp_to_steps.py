"""LogcumsumexpToSteps: running sums of exponentials whose tails are not lost."""

import pytest
import torch
from eager import Model, assert_as_eager, assert_whole, lower
from torch import Tensor
from torch.export import Dim

from stepwell.ir.declared.numerics import NUMERICS


def running(at: int) -> Model:
    """Running sums of exponentials of what is known to be finite."""
    return lambda x: (100 * x.tanh()).logcumsumexp(at)


@pytest.mark.parametrize(("shape", "at"), [((3, 7), -1), ((16, 4), 0), ((2, 1, 6), 1), ((8,), 0)])
def test_sums_are_pytorchs_though_the_greatest_is_200_above(shape: tuple[int, ...], at: int):
    x = torch.randn(shape) * 3
    lowered = lower(running(at), x, numerics="finite")
    assert_whole(lowered)
    wanted = (100 * x.tanh()).double().logcumsumexp(at)
    torch.testing.assert_close(lowered.run(x)[0].double(), wanted, rtol=2e-6, atol=1e-5)


def test_the_batch_may_be_open():
    dynamic = {0: Dim("b", min=1, max=8)}
    lowered = lower(running(1), torch.randn(3, 9), dynamic=dynamic, numerics="finite")
    assert_whole(lowered)
    for rows in (1, 8):
        assert_as_eager(lowered, running(1), torch.randn(rows, 9), rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_minus_infinity_is_left_to_kernels(numerics: str):
    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(mask, -torch.inf).logcumsumexp(-1)

    inputs = torch.randn(2, 6), torch.arange(6).expand(2, 6) < 2
    assert_as_eager(lower(masked, *inputs, numerics=numerics), masked, *inputs)
