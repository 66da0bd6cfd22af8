"""`scan` and `map`: the higher-order operators of torch as so many copies of their body."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as each
from torch._higher_order_ops.scan import scan

import stepwell
from stepwell.dialects.tosa.limits import EIGHT_K

from .graphs import Of, agree


class Recurrence(nn.Module):
    """An Elman cell over time, and its states."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(3, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(state: torch.Tensor, value: torch.Tensor):
            state = self.cell(value, state)
            return state, state * 2

        last, states = scan(step, torch.zeros(2, 4), x)
        return last, states


class Rows(nn.Module):
    """A layer for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.layer.weight, self.layer.bias
        return each(lambda row, w, b: nn.functional.linear(row, w, b).relu(), x, *weights)


def totals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Running sums, and the products of each with what came."""
    return scan(lambda total, row: (total + row, total * row), torch.zeros(3), x)


@pytest.mark.parametrize("steps", [1, 3, EIGHT_K.list + 1])
@pytest.mark.parametrize("model", [Recurrence(), Rows()], ids=lambda model: type(model).__name__)
def test_a_loop_is_its_steps_one_after_the_other(model: nn.Module, steps: int) -> None:
    x = torch.randn(steps, 2, 3)
    agree(model, x, target="tosa-1.0+fp", rtol=2e-5, atol=1e-6)


def test_a_loop_that_is_too_long_says_how_many_ops_it_would_be() -> None:
    exported = torch.export.export(Rows(), (torch.randn(5000, 2, 3),))
    with pytest.raises(stepwell.StepwellError, match="5000 steps would be"):
        stepwell.lower(exported, "tosa-1.1+fp+shape")


def test_a_loop_of_a_symbolic_number_of_steps_is_refused() -> None:
    shapes = (({0: torch.export.Dim("steps", min=2, max=9)},),)
    exported = torch.export.export(Of(totals), (torch.randn(5, 3),), dynamic_shapes=shapes)
    with pytest.raises(stepwell.StepwellError, match="is symbolic"):
        stepwell.lower(exported, "tosa-1.1+fp+shape")
