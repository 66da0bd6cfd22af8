"""Branches and loops: their layers are packed into delegates of their own, weights and all."""

import pytest
import torch
from eager import assert_as_eager, lower
from torch import nn
from torch._higher_order_ops.while_loop import while_loop


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def steep(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.down(torch.relu(self.up(x))))

        def smooth(x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.sigmoid(self.up(x))) * 2

        return torch.cond(x.sum() > 0, steep, smooth, (x,)) + 1


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def going(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < 3

        def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.tanh(self.layer(y))

        return while_loop(going, step, (torch.zeros((), dtype=torch.int64), x))[1]


@pytest.mark.parametrize("module", [Branches(), Loop()], ids=["cond", "while_loop"])
def test_layers_inside_regions_stand_in_delegates_with_their_weights(module: nn.Module) -> None:
    x = torch.randn(4, 8)
    lowered = lower(module, x)
    assert not lowered.report.outside["aten.linear.default"]
    for given in (x.abs(), -x.abs()):
        assert_as_eager(lowered, module, given, rtol=1e-5, atol=1e-5)
        assert_as_eager(lowered.program, module, given)
