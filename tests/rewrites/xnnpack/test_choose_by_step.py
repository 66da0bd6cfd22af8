"""ChooseByStep: both sides, one of them by one and one by zero."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import stepwell

LEAST = torch.finfo(torch.float32).tiny
EDGES = torch.tensor([0.0, -0.0, LEAST, -LEAST, 3e38, -3e38, 0.5, 0.49999997, 0.50000006, -0.5])


class Choice(nn.Module):
    def __init__(self, condition: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.condition(x), x.tanh(), 2 - x.tanh())


@pytest.mark.parametrize("number", [0.0, 0.5, -0.5])
@pytest.mark.parametrize("comparison", [torch.ge, torch.gt, torch.le, torch.lt])
def test_a_comparison_chooses_at_its_edge_as_pytorch_does(
    comparison: Callable[[Tensor, float], Tensor], number: float
):
    model, x = Choice(lambda x: comparison(x, number)), EDGES
    lowered = stepwell.lower(export(model, (x,)), "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    torch.testing.assert_close(lowered.run(x)[0], model(x))


def test_by_default_a_nan_goes_where_pytorch_sends_it():
    model, x = Choice(lambda x: x > 0), torch.tensor([1.0, torch.nan, -1.0])
    lowered = stepwell.lower(export(model, (x,)), "xnnpack")
    assert "aten.where.self" in lowered.report.outside
    torch.testing.assert_close(lowered.run(x)[0], model(x), equal_nan=True)


class Guarded(nn.Module):
    """What is not chosen may be no number."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, self.function(x), x)


@pytest.mark.parametrize("function", [torch.log, torch.sqrt, lambda x: (-x).exp() - 1])
def test_a_side_that_may_be_no_number_is_not_multiplied(function: Callable[[Tensor], Tensor]):
    model, x = Guarded(function), torch.tensor([1.0, 0.0, -1.0, -100.0])
    lowered = stepwell.lower(export(model, (x,)), "xnnpack", numerics="finite")
    torch.testing.assert_close(lowered.run(x)[0], model(x))
