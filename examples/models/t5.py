"""T5 (Raffel et al. 2020): one encoder block, and an encoder-decoder with logits."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, HIDDEN, VOCABULARY = 32, 4, 64, 100
BUCKETS, FARTHEST = 32, 128


class Norm(nn.Module):
    """T5's layer norm: without mean and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def bucket(relative: Tensor, bidirectional: bool) -> Tensor:
    """Buckets of distances: one for each small distance, logarithmic ones for large distances."""
    buckets, found = BUCKETS, torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        found = found + (relative > 0).to(torch.long) * buckets
        relative = torch.abs(relative)
    else:
        relative = -torch.min(relative, torch.zeros_like(relative))
    exact = buckets // 2
    far = torch.log(relative.float() / exact) / math.log(FARTHEST / exact) * (buckets - exact)
    far = exact + far.to(torch.long)
    far = torch.min(far, torch.full_like(far, buckets - 1))
    return found + torch.where(relative < exact, relative, far)


class Attention(nn.Module):
    """Attention without a scale; the first layer of a stack owns the bias of distances."""

    def __init__(self, decoder: bool, biased: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.distances = nn.Embedding(BUCKETS, HEADS) if biased else None

    def bias(self, queries: int, keys: int) -> Tensor:
        """``[1, HEADS, queries, keys]``, with the causal mask in a decoder."""
        assert self.distances is not None
        relative = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
        values = self.distances(bucket(relative, not self.decoder))
        values = values.permute([2, 0, 1]).unsqueeze(0)
        if self.decoder:
            mask = torch.ones(queries, keys).tril()
            values = values + (1.0 - mask)[None, None] * torch.finfo(torch.float32).min
        return values

    def forward(self, x: Tensor, source: Tensor, bias: Tensor | None) -> Tensor:
        def split(x: Tensor) -> Tensor:
            return x.view(x.shape[0], -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        scores = torch.matmul(split(self.q(x)), split(self.k(source)).transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        y = torch.matmul(weights, split(self.v(source)))
        return self.o(y.transpose(1, 2).contiguous().view(x.shape[0], -1, WIDTH))


class Block(nn.Module):
    """Pre-norm self attention, attention to an encoder's states in a decoder, a rectified MLP."""

    def __init__(self, decoder: bool = False, biased: bool = True) -> None:
        super().__init__()
        self.norm1, self.attention = Norm(), Attention(decoder, biased)
        if decoder:
            self.norm2, self.cross = Norm(), Attention(decoder, False)
        self.decoder = decoder
        self.norm3 = Norm()
        self.wi = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.wo = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(
        self, x: Tensor, source: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        if bias is None:
            bias = self.attention.bias(x.shape[1], x.shape[1])
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, bias)
        if source is not None:
            x = x + self.cross(self.norm2(x), source, None)
        return x + self.wo(F.relu(self.wi(self.norm3(x))))


class T5(nn.Module):
    """Two layers on each side, embeddings shared with the head."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.ModuleList([Block(False, layer == 0) for layer in range(2)])
        self.decoder = nn.ModuleList([Block(True, layer == 0) for layer in range(2)])
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.shared(source), self.shared(target)
        bias = self.encoder[0].attention.bias(x.shape[1], x.shape[1])
        for block in self.encoder:
            x = block(x, bias=bias)
        x = self.norm1(x)
        bias = self.decoder[0].attention.bias(y.shape[1], y.shape[1])
        for block in self.decoder:
            y = block(y, x, bias)
        y = self.norm2(y) * (WIDTH**-0.5)
        return F.linear(y, self.shared.weight)


def t5_block() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An encoder's block over 24 tokens."""
    return randomize(Block()), (random_input(1, 24, WIDTH),)


def t5() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """20 tokens in, logits of the next ones for 12."""
    source = torch.arange(20)[None] * 7 % VOCABULARY
    return randomize(T5()), (source, torch.arange(12)[None] * 5 % VOCABULARY)
