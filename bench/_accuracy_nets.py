"""Nets that `accuracy.py` trains: fixed seeds, data inside packages, at most a minute each.

Images are scikit-learn's digits, shifted and noisy; sounds are chirps and tones made here; text is
what Python ships of its own: its reference (`pydoc_data.topics`) and its library, byte by byte.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import datetime
import decimal
import difflib
import doctest
import inspect
import ipaddress
import logging
import math
import pathlib
import pickle
import statistics
import tarfile
import typing
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 256
SEQUENCE = 64


class Attention(nn.Module):
    """Self-attention; causal in language models."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.cache = heads, causal, nn.Identity()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = self.cache(k), self.cache(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    """Attention and two linear layers, each after a norm."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    """Patches of 2 × 2 pixels, two blocks, classes of the mean."""

    def __init__(
        self, channels: int = 1, tokens: int = 16, classes: int = 10, width: int = 64
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(channels, width, 2, 2)
        self.place = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class MixerBlock(nn.Module):
    """Linear layers over the patches, then over the channels."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token1, self.token2 = nn.Linear(tokens, 64), nn.Linear(64, tokens)
        self.fc1, self.fc2 = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x).transpose(1, 2)
        x = x + self.token2(F.gelu(self.token1(y))).transpose(1, 2)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Mixer(nn.Module):
    """An MLP-Mixer of two blocks."""

    def __init__(self, tokens: int = 16, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, 2, 2)
        self.blocks = nn.Sequential(*(MixerBlock(width, tokens) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[Any]:
    """A convolution and its batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """What is added to its input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Excite(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.down(x.mean((2, 3), keepdim=True)))
        return x * F.hardsigmoid(self.up(y))


def ending(width: int, classes: int) -> list[nn.Module]:
    """Means of channels, and classes of them."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def cnn() -> nn.Module:
    """Three convolutions."""
    first = [*conv(1, 16), nn.ReLU(), *conv(16, 32, 3, 2), nn.ReLU(), *conv(32, 48, 3, 2)]
    return nn.Sequential(*first, nn.ReLU(), *ending(48, 10))


def bottleneck(width: int, out: int, stride: int, act: Callable[[], nn.Module]) -> list[nn.Module]:
    """Of a MobileNet: wider, each channel for itself, narrower."""
    wide = 4 * width
    first = [*conv(width, wide, 1), act(), *conv(wide, wide, 3, stride, wide), act()]
    return [*first, *conv(wide, out, 1)]


def mobilenet(act: Callable[[], nn.Module] = nn.ReLU6, excite: bool = False) -> nn.Module:
    """Bottlenecks with depthwise convolutions."""
    more = [Excite(24)] if excite else []
    first = [*conv(1, 16), act(), Residual(*bottleneck(16, 16, 1, act))]
    second = [*bottleneck(16, 24, 2, act), *more, Residual(*bottleneck(24, 24, 1, act))]
    return nn.Sequential(*first, *second, *conv(24, 64, 1), act(), *ending(64, 10))


def resnet() -> nn.Module:
    """Two residual blocks."""
    blocks = [Residual(*conv(32, 32), nn.ReLU(), *conv(32, 32)) for _ in range(2)]
    first = [*conv(1, 32, 3, 2), nn.ReLU()]
    return nn.Sequential(*first, blocks[0], nn.ReLU(), blocks[1], nn.ReLU(), *ending(32, 10))


class Norm2d(nn.LayerNorm):
    """A layer norm over channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """Depthwise 5 × 5, norm, two pointwise convolutions."""

    def block(width: int) -> nn.Module:
        deep = nn.Conv2d(width, width, 5, 1, 2, groups=width)
        wide = nn.Conv2d(width, 4 * width, 1)
        return Residual(deep, Norm2d(width), wide, nn.GELU(), nn.Conv2d(4 * width, width, 1))

    first = [nn.Conv2d(1, 32, 2, 2), Norm2d(32)]
    return nn.Sequential(*first, block(32), block(32), Norm2d(32), *ending(32, 10))


def mlp() -> nn.Module:
    """Three linear layers."""
    layers = [nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def hearing() -> nn.Module:
    """A DS-CNN over spectrograms."""
    first = [*conv(1, 32, 3, 2), nn.ReLU()]
    for _ in range(2):
        first += [*conv(32, 32, 3, 1, 32), nn.ReLU(), *conv(32, 32, 1), nn.ReLU()]
    return nn.Sequential(*first, *ending(32, 12))


class Listening(nn.Module):
    """A transformer over the frames of a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.block = nn.Linear(32, 48), Block(48, 4)
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.block(self.into(x.squeeze(1)))).mean(1))


def series() -> nn.Module:
    """Dilated convolutions over time: images of one row."""

    def layer(inputs: int, outputs: int, dilation: int) -> list[nn.Module]:
        reach = (1, dilation)
        body = nn.Conv2d(inputs, outputs, (1, 3), 1, (0, dilation), reach, bias=False)
        return [body, nn.BatchNorm2d(outputs), nn.ReLU()]

    deep = [*layer(1, 32, 1), *layer(32, 32, 2), *layer(32, 32, 4), *layer(32, 32, 8)]
    return nn.Sequential(*deep, *ending(32, 12))


class Language(nn.Module):
    """A causal language model over bytes."""

    def __init__(self, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(128, width)
        self.place = nn.Parameter(torch.randn(1, SEQUENCE, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(x) + self.place)))


class Rotary(nn.Module):
    """Grouped queries, turned by their places (Su et al. 2021)."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.cache = nn.Identity()
        self.q, self.proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        angles = torch.arange(t)[:, None] * 1e4 ** (-torch.arange(0, self.size, 2) / self.size)
        turns = torch.cat((angles, angles), -1)

        def turned(y: Tensor) -> Tensor:
            left, right = y.chunk(2, -1)
            return y * turns.cos() + torch.cat((-right, left), -1) * turns.sin()

        q, k, v = (f(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in
                   (self.q, self.k, self.v))  # fmt: skip
        k, v = self.cache(turned(k)), self.cache(v)
        k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Cache(nn.Module):
    """Keys or values `[B, heads, T, size]` as a cache of int8 keeps them, a scale a token."""

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        kept = ops.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        return ops.dequantize_per_token(kept, scale, zero, -128, 127, torch.int8, torch.float32)


class GatedBlock(nn.Module):
    """Attention and a gated unit, each after a root mean square norm (Touvron et al. 2023)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.attn = Rotary(width, 4, 2)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gated(nn.Module):
    """A language model over bytes in the form of Llama's."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(128, width)
        self.blocks = nn.Sequential(*(GatedBlock(width) for _ in range(depth)))
        self.norm, self.head = nn.RMSNorm(width, 1e-5), nn.Linear(width, 128, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(x))))


Data = tuple[Tensor, Tensor]
"""Inputs and labels."""


@lru_cache(maxsize=1)
def digits() -> tuple[Data, Data]:
    """Training and held-out halves as they are: `[N, 1, 8, 8]`, 0 to 1."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x[order[:898]], y[order[:898]]), (x[order[898:]], y[order[898:]])


def images(split: str, count: int, seed: int) -> Data:
    """Digits shifted by up to a pixel, in noise; those of `accept` and `test` share no image."""
    random = torch.Generator().manual_seed(seed)
    train, rest = digits()
    half = len(rest[0]) // 2
    parts = {"train": train, "accept": (rest[0][:half], rest[1][:half])}
    x, y = parts.get(split, (rest[0][half:], rest[1][half:]))
    at = torch.randint(len(x), (count,), generator=random)
    padded, labels = F.pad(x[at], (1, 1, 1, 1)), y[at]
    dx, dy = torch.randint(3, (2, count), generator=random)
    rows = (dy[:, None] + torch.arange(8))[:, :, None]
    columns = (dx[:, None] + torch.arange(8))[:, None, :]
    moved = padded[:, 0][torch.arange(count)[:, None, None], rows, columns].unsqueeze(1)
    return moved + 0.15 * torch.randn(moved.shape, generator=random), labels


def sounds(split: str, count: int, seed: int) -> Data:
    """Twelve classes of tones, chirps and beats in noise: waves `[N, 256]`."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(12, (count,), generator=random)
    t = torch.arange(256) / 256
    pitch = (8 + 6 * (y % 4) + 3 * torch.rand(count, generator=random))[:, None]
    bend = torch.tensor([0.0, 14.0, 0.0])[y // 4][:, None]
    beat = torch.tensor([0.0, 0.0, 1.0])[y // 4][:, None]
    phase = 6.3 * torch.rand(count, 1, generator=random)
    wave = torch.sin(2 * math.pi * (pitch * t + bend * t * t) + phase)
    wave = wave * (1 - beat + beat * torch.sin(2 * math.pi * 5 * t + phase))
    return wave + 1.4 * torch.randn(count, 256, generator=random), y


def waves(split: str, count: int, seed: int) -> Data:
    """Sounds as images of one row."""
    x, y = sounds(split, count, seed)
    return x[:, None, None, :], y


def spectra(split: str, count: int, seed: int) -> Data:
    """Logarithms of their spectra: `[N, 1, 15, 32]`."""
    x, y = sounds(split, count, seed)
    frames = x.unfold(1, 64, 13)[:, :15] * torch.hann_window(64)
    return torch.fft.rfft(frames).abs()[..., 1:33].clamp_min(0.05).log().unsqueeze(1), y


def reference() -> str:
    """Python's reference."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def sources() -> str:
    """Modules of Python's own library, in the order of their names."""
    first = argparse, ast, asyncio.events, datetime, decimal, difflib, doctest, inspect
    modules = *first, ipaddress, logging, pathlib, pickle, statistics, tarfile, typing, zipfile
    return "\n".join(inspect.getsource(module) for module in modules)


@cache
def text(of: Callable[[], str]) -> dict[str, Tensor]:
    """As bytes, 80 % to train on, 10 to accept by, 10 to report on."""
    whole = torch.frombuffer(bytearray(of().encode("ascii", "replace")), dtype=torch.uint8).long()
    first, second = len(whole) * 8 // 10, len(whole) * 9 // 10
    return {"train": whole[:first], "accept": whole[first:second], "test": whole[second:]}


def language(split: str, count: int, seed: int, of: Callable[[], str] = reference) -> Data:
    """Bytes and the ones that follow them: `[N, 64]` both."""
    held = text(of)[split]
    random = torch.Generator().manual_seed(seed)
    at = torch.randint(len(held) - SEQUENCE - 1, (count,), generator=random)
    rows = held[at[:, None] + torch.arange(SEQUENCE + 1)]
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def code(split: str, count: int, seed: int) -> Data:
    """The same of Python's library."""
    return language(split, count, seed, sources)


Source = Callable[[str, int, int], Data]


@dataclass(frozen=True)
class Net:
    """A net, its data, and how long it is trained."""

    make: Callable[[], nn.Module]
    data: Source
    steps: int = 500
    batch: int = 128
    rate: float = 3e-3
    after: Callable[[nn.Module], None] = lambda model: None
    """The modification after training."""
    hard: str = ""
    """What is hard about it."""

    def batches(self, split: str, count: int) -> list[tuple[tuple[Tensor], Tensor]]:
        """Held-out batches, the same ones every time."""
        size = self.rows
        seed = {"train": 11, "accept": 12, "test": 13}[split]
        x, y = self.data(split, count * size, seed)
        return [((a,), b) for a, b in zip(x.split(size), y.split(size), strict=True)]

    @property
    def rows(self) -> int:
        """Of a batch."""
        return 64 if self.data in (language, code) else BATCH

    def train(self) -> nn.Module:
        """A trained net; Adam, one cycle."""
        torch.manual_seed(0)
        model = self.make().train()
        optimizer = torch.optim.AdamW(model.parameters(), self.rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.steps)
        for step in range(self.steps):
            x, y = self.data("train", self.batch, 1000 + step)
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        self.after(model)
        return model.eval()


NETS: dict[str, Net] = {
    "vit": Net(Vit, images, 700, 128, 2e-3),
    "mixer": Net(Mixer, images, 500),
    "cnn": Net(cnn, images),
    "language": Net(Language, language, 800, 32, 4e-3),
    "gated": Net(Gated, code, 800, 32, 4e-3),
    "mlp": Net(mlp, images, 1000),
    "resnet": Net(resnet, images, 300),
    "listening": Net(Listening, spectra, 300),
    "hearing": Net(hearing, spectra, 250),
    "mobilenet": Net(mobilenet, images),
    "convnext": Net(convnext, images, 300),
    "series": Net(series, waves, 200),
    "mobilenet-se": Net(lambda: mobilenet(nn.Hardswish, True), images, 400),
}
"""Every net by its name."""
