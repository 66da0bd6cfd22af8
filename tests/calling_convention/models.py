"""Models of two inputs: what is read, what is written, how; and trees, numbers and open sizes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Of(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(x, y)


def _writes(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def _writes_a_row(x: Tensor, y: Tensor) -> Tensor:
    x[0].mul_(2)
    return x + y


def _writes_both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.T[1].copy_(y[0][: x.shape[0]])
    y.neg_()
    return x + 0, y * 3


def _returns_it(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, y.relu()


FLOATS = torch.tensor([[1.5, -2.0, 0.25, 3.0], [0.5, 4.0, -1.0, 2.0], [7.0, -0.5, 1.0, -3.0]])
MODELS: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "reads": (lambda x, y: x * 2 + y, FLOATS),
    "returns an input": (_returns_it, FLOATS),
    "moves": (lambda x, y: (x.T.reshape(4, 3), y.flip(0)), FLOATS),
    "writes": (_writes, FLOATS),
    "writes a row": (_writes_a_row, FLOATS),
    "writes both": (_writes_both, FLOATS),
    "reads integers": (lambda x, y: x + y * 2, FLOATS.long()),
    "writes integers": (_writes, FLOATS.long()),
    "reads a scalar": (lambda x, y: x * y, FLOATS[0, 0].clone()),
    "writes a scalar": (_writes, FLOATS[0, 0].clone()),
}
