"""A small post-norm transformer encoder (Vaswani et al. 2017), its attention written out."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


def sinusoids(tokens: int, width: int) -> Tensor:
    """The paper's position encoding: ``[tokens, width]``, sines and cosines interleaved."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.outer(torch.arange(tokens).float(), rates)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class EncoderLayer(nn.Module):
    """Self-attention and a ReLU MLP, each added to its input and then normalized."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width)

    def attend(self, x: Tensor) -> Tensor:
        """Softmax(Q K^T / sqrt(d)) V for each head of ``[batch, tokens, width]``."""
        batch, tokens, width = x.shape
        head = width // self.heads
        q = self.query(x).view(batch, tokens, self.heads, head).transpose(1, 2)
        k = self.key(x).view(batch, tokens, self.heads, head).transpose(1, 2)
        v = self.value(x).view(batch, tokens, self.heads, head).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(head)
        y = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.contract(F.relu(self.expand(x))))


class Encoder(nn.Module):
    """Features ``[batch, tokens, features]`` to ``[batch, classes]``, by the mean over tokens."""

    def __init__(self, layers: int, width: int, tokens: int, features: int, classes: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, width)
        self.register_buffer("positions", sinusoids(tokens, width))
        self.layers = nn.Sequential(*(EncoderLayer(width, 2, 2 * width) for _ in range(layers)))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.project(x) + self.positions)
        return self.classifier(x.mean(1))


def transformer_encoder_2layers() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """64 wide, 2 heads, 32 tokens of 40 features, 12 classes: 70 k parameters."""
    return randomize(Encoder(2, 64, 32, 40, 12)), (random_input(1, 32, 40),)
