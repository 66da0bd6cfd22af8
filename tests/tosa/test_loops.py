"""`scan` and `map`: the higher-order operators of torch as so many copies of their body."""

import pytest
import torch
from eager import Function, lower
from torch import nn
from torch._higher_order_ops.map import map as each
from torch._higher_order_ops.scan import scan

import stepwell
from stepwell.dialects.tosa.limits import EIGHT_K

from .graphs import agree


def recurrence(x: torch.Tensor, cell: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """An Elman cell over time, and its states."""

    def step(state: torch.Tensor, value: torch.Tensor):
        state = cell(value, state)
        return state, state * 2

    return scan(step, torch.zeros(2, 4), x)


def rows(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    """A layer for each row."""
    linear = nn.functional.linear
    return each(lambda row, w, b: linear(row, w, b).relu(), x, layer.weight, layer.bias)


RECURRENCE, ROWS = Function(recurrence, nn.RNNCell(3, 4)), Function(rows, nn.Linear(3, 4))


def totals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Running sums, and the products of each with what came."""
    return scan(lambda total, row: (total + row, total * row), torch.zeros(3), x)


@pytest.mark.parametrize("steps", [1, 3, EIGHT_K.list + 1])
@pytest.mark.parametrize("model", [RECURRENCE, ROWS], ids=["recurrence", "rows"])
def test_a_loop_is_its_steps_one_after_the_other(model: nn.Module, steps: int) -> None:
    x = torch.randn(steps, 2, 3)
    agree(model, x, target="tosa-1.0+fp", rtol=2e-5, atol=1e-6)


def test_a_loop_that_is_too_long_says_how_many_ops_it_would_be() -> None:
    with pytest.raises(stepwell.StepwellError, match="5000 steps would be"):
        lower(ROWS, torch.randn(5000, 2, 3), target="tosa-1.1+fp+shape")


def test_a_loop_of_a_symbolic_number_of_steps_is_refused() -> None:
    steps = {0: torch.export.Dim("steps", min=2, max=9)}
    with pytest.raises(stepwell.StepwellError, match="is symbolic"):
        lower(totals, torch.randn(5, 3), target="tosa-1.1+fp+shape", dynamic=steps)
