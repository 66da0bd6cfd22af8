"""BERT (Devlin et al. 2018), with a mask of padding and a pooled class token."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import randomize

WIDTH, HEADS, HIDDEN, VOCABULARY, CONTEXT = 32, 4, 64, 100, 24


class Embeddings(nn.Module):
    """Words, positions and segments, with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.register_buffer("ids", torch.arange(CONTEXT).expand((1, -1)), persistent=False)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        x = self.words(tokens) + self.segments(segments)
        return self.norm(x + self.positions(self.ids[:, : tokens.shape[1]]))


def gelu(x: Tensor) -> Tensor:
    """GELU as in the first port to PyTorch."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Layer(nn.Module):
    """Post-norm attention and MLP; the mask is added to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.dense = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def split(x: Tensor) -> Tensor:
            return x.view(*x.size()[:-1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + mask
        y = torch.matmul(self.dropout(F.softmax(scores, dim=-1)), v)
        y = y.permute(0, 2, 1, 3).contiguous()
        y = self.dense(y.view(*y.size()[:-2], WIDTH))
        x = self.norm1(self.dropout(y) + x)
        return self.norm2(self.dropout(self.down(gelu(self.up(x)))) + x)


class BERT(nn.Module):
    """States ``[batch, tokens, WIDTH]`` and the pooled class token ``[batch, WIDTH]``."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, segments: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        mask = seen[:, None, None, :].to(dtype=torch.float32)
        mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.embeddings(tokens, segments)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """16 tokens, the last three of them padding."""
    tokens = torch.arange(1, 17)[None] * 7 % VOCABULARY
    seen = (torch.arange(16) < 13).long()[None]
    return randomize(BERT()), (tokens, (torch.arange(16) > 8).long()[None], seen)
