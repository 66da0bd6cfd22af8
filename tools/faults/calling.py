"""A function as a module, which reproductions share and with which their scripts begin."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Of(torch.nn.Module):
    """A function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)
