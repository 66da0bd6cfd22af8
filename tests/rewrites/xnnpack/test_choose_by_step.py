"""ChooseByStep: both sides, one of them by one and one by zero."""

from collections.abc import Callable

import pytest
import torch
from eager import Model, assert_as_eager, assert_whole, lower
from torch import Tensor

LEAST = torch.finfo(torch.float32).tiny
EDGES = torch.tensor([0.0, -0.0, LEAST, -LEAST, 3e38, -3e38, 0.5, 0.49999997, 0.50000006, -0.5])


def choice(condition: Callable[[Tensor], Tensor]) -> Model:
    return lambda x: torch.where(condition(x), x.tanh(), 2 - x.tanh())


@pytest.mark.parametrize("number", [0.0, 0.5, -0.5])
@pytest.mark.parametrize("comparison", [torch.ge, torch.gt, torch.le, torch.lt])
def test_a_comparison_chooses_at_its_edge_as_pytorch_does(
    comparison: Callable[[Tensor, float], Tensor], number: float
):
    model = choice(lambda x: comparison(x, number))
    lowered = lower(model, EDGES, numerics="finite")
    assert_whole(lowered)
    assert_as_eager(lowered, model, EDGES)


def test_by_default_a_nan_goes_where_pytorch_sends_it():
    model, x = choice(lambda x: x > 0), torch.tensor([1.0, torch.nan, -1.0])
    lowered = lower(model, x)
    assert "aten.where.self" in lowered.report.outside
    assert_as_eager(lowered, model, x)


@pytest.mark.parametrize("function", [torch.log, torch.sqrt, lambda x: (-x).exp() - 1])
def test_a_side_that_may_be_no_number_is_not_multiplied(function: Callable[[Tensor], Tensor]):
    x = torch.tensor([1.0, 0.0, -1.0, -100.0])

    def guarded(x: Tensor) -> Tensor:
        return torch.where(x > 0, function(x), x)

    assert_as_eager(lower(guarded, x, numerics="finite"), guarded, x)
