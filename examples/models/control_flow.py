"""Models with control flow: ``torch.cond`` and ``while_loop``."""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from random_weights import random_input, randomize


class Branches(nn.Module):
    """One of two layers for ``[batch, 16]``, selected by the sign of the input's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.above = nn.Linear(16, 16)
        self.below = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        def above(x: Tensor) -> Tensor:
            return torch.relu(self.above(x))

        def below(x: Tensor) -> Tensor:
            return self.below(x) - 1.0

        return torch.cond(x.mean() > 0, above, below, (x,)) * 2.0


class Iteration(nn.Module):
    """``x <- tanh(layer(x))`` for ``[batch, 16]``, repeated ``steps`` times (int64, [])."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        def unfinished(step: Tensor, x: Tensor) -> Tensor:
            return step > 0

        def advance(step: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return step - 1, torch.tanh(self.layer(x))

        return while_loop(unfinished, advance, (steps.clone(), x))[1]


def cond_model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """``Branches`` on a batch of 2; negate the input to take the other branch."""
    return randomize(Branches()), (random_input(2, 16),)


def while_loop_model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """``Iteration`` on a batch of 2, three steps."""
    return randomize(Iteration()), (random_input(2, 16), torch.tensor(3))
