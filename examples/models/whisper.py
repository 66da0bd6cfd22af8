"""Whisper (Radford et al. 2022): the encoder of a spectrogram, and the decoder of tokens."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, MELS, FRAMES, VOCABULARY, CONTEXT = 32, 4, 16, 48, 100, 16


def sinusoids(length: int) -> Tensor:
    """Positions ``[length, WIDTH]``: sines, then cosines."""
    step = math.log(10000) / (WIDTH // 2 - 1)
    scales = torch.exp(-step * torch.arange(WIDTH // 2))
    angles = torch.arange(length)[:, None] * scales[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class MultiHeadAttention(nn.Module):
    """Scales queries and keys by the fourth root of a head's width each."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        source = x if source is None else source
        scale = (WIDTH // HEADS) ** -0.25
        q, k, v = self.query(x), self.key(source), self.value(source)
        q = q.view(*q.shape[:2], HEADS, -1).permute(0, 2, 1, 3)
        k = k.view(*k.shape[:2], HEADS, -1).permute(0, 2, 1, 3)
        v = v.view(*v.shape[:2], HEADS, -1).permute(0, 2, 1, 3)
        scores = (q * scale) @ (k * scale).transpose(-1, -2)
        if mask is not None:
            scores = scores + mask[: x.shape[1], : x.shape[1]]
        weights = F.softmax(scores.float(), dim=-1).to(q.dtype)
        return self.out((weights @ v).permute(0, 2, 1, 3).flatten(start_dim=2))


class Block(nn.Module):
    """Pre-norm attention, attention to a source if there is one, and an MLP with GELU."""

    def __init__(self, cross: bool = False) -> None:
        super().__init__()
        self.attn, self.attn_ln = MultiHeadAttention(), nn.LayerNorm(WIDTH)
        self.cross = MultiHeadAttention() if cross else None
        self.cross_ln = nn.LayerNorm(WIDTH) if cross else None
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.mlp_ln = nn.LayerNorm(WIDTH)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross is not None and self.cross_ln is not None:
            x = x + self.cross(self.cross_ln(x), source)
        return x + self.mlp(self.mlp_ln(x))


class Encoder(nn.Module):
    """``[batch, MELS, FRAMES]`` to ``[batch, FRAMES / 2, WIDTH]``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, WIDTH, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(FRAMES // 2))
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.ln_post = nn.LayerNorm(WIDTH)

    def forward(self, mels: Tensor) -> Tensor:
        x = F.gelu(self.conv1(mels))
        x = F.gelu(self.conv2(x)).permute(0, 2, 1)
        x = (x + self.positions).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class Decoder(nn.Module):
    """Tokens and an encoder's states to logits, with the embedding as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.empty(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList([Block(cross=True) for _ in range(2)])
        self.ln = nn.LayerNorm(WIDTH)
        mask = torch.empty(CONTEXT, CONTEXT).fill_(-torch.inf).triu_(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor, source: Tensor) -> Tensor:
        x = self.token_embedding(tokens) + self.positions[: tokens.shape[-1]]
        x = x.to(source.dtype)
        for block in self.blocks:
            x = block(x, source, self.mask)
        x = self.ln(x)
        return (x @ torch.transpose(self.token_embedding.weight.to(x.dtype), 0, 1)).float()


def whisper_encoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """48 frames of a spectrogram."""
    return randomize(Encoder()), (random_input(1, MELS, FRAMES),)


def whisper_decoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Ten tokens over 24 states."""
    tokens = torch.arange(10)[None] * 7 % VOCABULARY
    return randomize(Decoder()), (tokens, random_input(1, FRAMES // 2, WIDTH))
