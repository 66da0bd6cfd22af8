"""Branches and loops: their layers are packed into delegates of their own, weights and all."""

import pytest
import torch
from eager import Function, assert_as_eager, lower
from torch import nn
from torch._higher_order_ops.while_loop import while_loop


def branches(x: torch.Tensor, up: nn.Module, down: nn.Module) -> torch.Tensor:
    def steep(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(down(torch.relu(up(x))))

    def smooth(x: torch.Tensor) -> torch.Tensor:
        return down(torch.sigmoid(up(x))) * 2

    return torch.cond(x.sum() > 0, steep, smooth, (x,)) + 1


def loop(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, torch.tanh(layer(y))

    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda i, y: i < 3, step, start)[1]


BRANCHES = Function(branches, nn.Linear(8, 16), nn.Linear(16, 8))
LOOP = Function(loop, nn.Linear(8, 8))


@pytest.mark.parametrize("module", [BRANCHES, LOOP], ids=["cond", "while_loop"])
def test_layers_inside_regions_stand_in_delegates_with_their_weights(module: nn.Module) -> None:
    x = torch.randn(4, 8)
    lowered = lower(module, x)
    assert not lowered.report.outside["aten.linear.default"]
    for given in (x.abs(), -x.abs()):
        assert_as_eager(lowered, module, given, rtol=1e-5, atol=1e-5)
        assert_as_eager(lowered.program, module, given)
