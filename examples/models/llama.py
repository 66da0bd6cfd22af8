"""Llama style decoders (Touvron et al. 2023): one block, and four layers with a KV cache."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, KV_HEADS, HIDDEN = 256, 8, 2, 688
HEAD = WIDTH // HEADS
VOCABULARY, CONTEXT = 1000, 64


class RMSNorm(nn.Module):
    """Scale by the root of the mean square of the last axis (Zhang and Sennrich 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale


def rotary_table(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[positions, HEAD]`` of rotary embedding (Su et al. 2021)."""
    frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
    angles = torch.outer(positions.float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair ``(x[i], x[i + HEAD / 2])`` of ``[..., tokens, HEAD]`` by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def repeat_heads(x: Tensor) -> Tensor:
    """``[batch, KV_HEADS, tokens, HEAD]`` -> ``[batch, HEADS, tokens, HEAD]``."""
    batch, _, tokens, _ = x.shape
    x = x[:, :, None].expand(batch, KV_HEADS, HEADS // KV_HEADS, tokens, HEAD)
    return x.reshape(batch, HEADS, tokens, HEAD)


class Attention(nn.Module):
    """Grouped-query attention; with ``cached``, over the keys and values of earlier calls."""

    def __init__(self, cached: bool) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.cached = cached
        if cached:
            self.register_buffer("keys", torch.zeros(1, KV_HEADS, CONTEXT, HEAD))
            self.register_buffer("values", torch.zeros(1, KV_HEADS, CONTEXT, HEAD))

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, positions: Tensor | None
    ) -> Tensor:
        batch, tokens, _ = x.shape
        q = self.query(x).view(batch, tokens, HEADS, HEAD).transpose(1, 2)
        k = self.key(x).view(batch, tokens, KV_HEADS, HEAD).transpose(1, 2)
        v = self.value(x).view(batch, tokens, KV_HEADS, HEAD).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.cached:
            self.keys[:, :, positions] = k
            self.values[:, :, positions] = v
            k, v = self.keys, self.values
        k, v = repeat_heads(k), repeat_heads(v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, WIDTH))


class SwiGLU(nn.Module):
    """A gated MLP: ``down(silu(gate(x)) * up(x))`` (Shazeer 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A pre-norm decoder block over ``[batch, tokens, WIDTH]``."""

    def __init__(self, cached: bool = False) -> None:
        super().__init__()
        self.norm1 = RMSNorm(WIDTH)
        self.attention = Attention(cached)
        self.norm2 = RMSNorm(WIDTH)
        self.mlp = SwiGLU()

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin, mask, positions)
        return x + self.mlp(self.norm2(x))


class LoneBlock(nn.Module):
    """One block that computes its rotary angles from the positions 0, 1, 2, …."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x, *rotary_table(torch.arange(x.shape[1])))


class Llama(nn.Module):
    """Tokens ``[1, n]`` at positions ``[n]`` to logits ``[1, n, VOCABULARY]``; both int64.

    Every call writes keys and values at its positions into the caches, which persist between calls.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(cached=True) for _ in range(layers))
        self.norm = RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        cos, sin = rotary_table(torch.arange(CONTEXT))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        sees = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        self.register_buffer("sees", sees, persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin, mask = self.cos[positions], self.sin[positions], self.sees[positions]
        for block in self.blocks:
            x = block(x, cos, sin, mask, positions)
        return self.head(self.norm(x))


def llama_block(tokens: int = 16) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """One block, 256 wide, 8 query and 2 key heads, over ``tokens``: 0.7 M parameters."""
    return randomize(LoneBlock()), (random_input(1, tokens, WIDTH),)


def llama_4layers() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Four layers with caches of 64 places, decoding one token at position 0."""
    return randomize(Llama(4)), (torch.tensor([[7]]), torch.tensor([0]))


def llama_4layers_prefill() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model of ``llama_4layers``, with the same weights, reading a prompt of eight tokens."""
    return randomize(Llama(4)), (torch.arange(3, 11)[None] * 17, torch.arange(8))
