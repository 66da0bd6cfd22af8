"""Models exported with dynamic shapes: these callables return the shapes as a third value."""

from typing import Any

from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from random_weights import random_input, randomize


class SmallConvNet(nn.Module):
    """Images ``[batch, 3, 16, 16]`` to logits ``[batch, 10]``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16 * 8 * 8, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv1(image)))
        x = F.relu(self.conv2(x))
        return self.fc(x.view(x.shape[0], -1))


class Mixing(nn.Module):
    """Self-attention over ``[1, tokens, 32]`` for any number of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v))


def dynamic_batch() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    """A convolutional net whose batch is 2 to 64."""
    shapes = {"image": {0: Dim("batch", min=2, max=64)}}
    return randomize(SmallConvNet()), (random_input(4, 3, 16, 16),), shapes


def dynamic_length() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    """An attention layer over 2 to 128 tokens."""
    shapes = {"x": {1: Dim("tokens", min=2, max=128)}}
    return randomize(Mixing()), (random_input(1, 10, 32),), shapes
