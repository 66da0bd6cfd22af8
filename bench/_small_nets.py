"""Forty small nets as microcontrollers run them, with operators that no benchmark suite has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Net = tuple[nn.Module, tuple[Tensor, ...]]


class Does(nn.Module):
    """A stem, then a function of what it gives, then a layer."""

    def __init__(self, stem: nn.Module, function: Callable[[Tensor], Tensor], *end: nn.Module):
        super().__init__()
        self.stem, self.function, self.end = stem, function, nn.Sequential(*end)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.function(self.stem(x)))


def image(function: Callable[[Tensor], Tensor], *end: nn.Module, channels: int = 8) -> Net:
    return Does(nn.Conv2d(3, channels, 3, padding=1), function, *end), (torch.randn(1, 3, 10, 9),)


def rows(function: Callable[[Tensor], Tensor], *end: nn.Module) -> Net:
    return Does(nn.Linear(12, 16), function, *end), (torch.randn(1, 6, 12),)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(40, 16), nn.Linear(16, 5)

    def forward(self, at: Tensor) -> Tensor:
        return self.layer(self.words(at)).mean(1)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.steps, self.layer = kind(12, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.steps(x)[0][:, -1])


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x * F.hardsigmoid(self.gate(x))


class Ring(nn.Module):
    """The last four frames, kept between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(1, 4, 12))
        self.layer = nn.Linear(48, 6)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.cat([self.frames[:, 1:], x], 1)
        self.frames.copy_(frames)
        return self.layer(frames.flatten(1))


def spread(x: Tensor) -> Tensor:
    return torch.cat([x.mean(1), x.std(1)], -1)


def nets() -> dict[str, Callable[[], Net]]:
    """Name → what gives a net and an input."""
    return {
        "upsample": lambda: image(
            lambda x: F.interpolate(x, scale_factor=2.0), nn.Conv2d(8, 4, 3, padding=1)
        ),
        "bilinear": lambda: image(
            lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), nn.Conv2d(8, 4, 1)
        ),
        "pixel_shuffle": lambda: image(lambda x: F.pixel_shuffle(x, 2), nn.Conv2d(2, 3, 3)),
        "prelu": lambda: image(nn.PReLU(8), nn.Conv2d(8, 4, 1)),
        "amax": lambda: image(lambda x: torch.amax(x, (2, 3)), nn.Linear(8, 4)),
        "adaptive_max": lambda: image(lambda x: F.adaptive_max_pool2d(x, (5, 3)), nn.Flatten()),
        "group_norm": lambda: image(nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        "instance_norm": lambda: image(nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 4, 1)),
        "argmax": lambda: image(lambda x: torch.argmax(x, 1)),
        "embedding": lambda: (Words(), (torch.randint(0, 40, (1, 7)),)),
        "roll": lambda: image(lambda x: torch.roll(x, (1, -2), (2, 3)), nn.Conv2d(8, 4, 1)),
        "log_softmax": lambda: rows(lambda x: F.log_softmax(x, -1)),
        "where": lambda: rows(lambda x: torch.where(x > 0.1, x, x * 0.5), nn.Linear(16, 4)),
        "std": lambda: rows(spread, nn.Linear(32, 4)),
        "l2_norm": lambda: rows(lambda x: F.normalize(x.mean(1), dim=-1), nn.Linear(16, 4)),
        "ceil_pool": lambda: image(
            lambda x: F.max_pool2d(x, 2, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True)
        ),
        "output_padding": lambda: image(
            nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1), nn.ReLU()
        ),
        "attention": lambda: (Attention(), (torch.randn(1, 6, 16),)),
        "encoder": lambda: (
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0),
            (torch.randn(1, 6, 16),),
        ),
        "lstm": lambda: (Recurrent(nn.LSTM), (torch.randn(1, 5, 12),)),
        "gru": lambda: (Recurrent(nn.GRU), (torch.randn(1, 5, 12),)),
        "squeeze_excite": lambda: (Squeeze(), (torch.randn(1, 3, 12, 12),)),
        "ring": lambda: (Ring(), (torch.randn(1, 1, 12),)),
        "mean_of_frames": lambda: rows(lambda x: x.mean(1), nn.Linear(16, 4)),
        "steps_apart": lambda: rows(lambda x: x[:, ::2] + x[:, 1::2], nn.Linear(16, 4)),
        "flip": lambda: rows(lambda x: x + x.flip(1), nn.LayerNorm(16), nn.Linear(16, 4)),
        "gelu": lambda: rows(F.gelu, nn.Linear(16, 4), nn.Softmax(-1)),
        "mish": lambda: image(F.mish, nn.Conv2d(8, 4, 3, 2), nn.Hardswish()),
        "conv1d": lambda: (
            nn.Sequential(nn.Conv1d(12, 8, 3, padding=2, dilation=2), nn.SiLU(), nn.MaxPool1d(2)),
            (torch.randn(1, 12, 20),),
        ),
        "nearest_by_three": lambda: image(
            lambda x: F.interpolate(x, (30, 14), mode="nearest"), nn.Conv2d(8, 4, 1)
        ),
        "bicubic": lambda: image(
            lambda x: F.interpolate(x, (13, 12), mode="bicubic"), nn.Conv2d(8, 4, 1)
        ),
        "uneven_average": lambda: image(nn.AdaptiveAvgPool2d((3, 4)), nn.Conv2d(8, 4, 1)),
        "uneven_maximum": lambda: image(
            lambda x: F.adaptive_max_pool2d(x, (3, 4)), nn.Conv2d(8, 4, 1)
        ),
        "transposed_groups": lambda: image(
            nn.ConvTranspose2d(8, 8, 3, 2, 2, output_padding=1, groups=4, dilation=2), nn.ReLU()
        ),
        "transposed_line": lambda: (
            nn.Sequential(nn.Conv1d(12, 8, 3), nn.ConvTranspose1d(8, 4, 4, 2, 1)),
            (torch.randn(1, 12, 20),),
        ),
        "best_of_axis": lambda: rows(lambda x: x.max(1).values - x.amin(1), nn.Linear(16, 4)),
        "masked": lambda: rows(lambda x: x.masked_fill(x < -0.2, -0.5), nn.Linear(16, 4)),
        "root_mean_square": lambda: rows(nn.RMSNorm(16), nn.Linear(16, 4)),
        "many_classes": lambda: rows(nn.Linear(16, 600), nn.Softmax(-1)),
        "unbind": lambda: rows(lambda x: torch.stack([p * p for p in x.unbind(1)], 2), nn.ELU()),
    }


def net(name: str) -> Net:
    """A net of seed 0, and an input."""
    torch.manual_seed(0)
    module, inputs = nets()[name]()
    return module.eval(), inputs


def like(value: Any, seed: int) -> Any:
    """Another input of the same kind."""
    torch.manual_seed(seed)
    if value.is_floating_point():
        return torch.randn_like(value)
    return torch.randint(0, 40, value.shape)


BOUND = 2e-6
"""How far a float program in C may be from the runtime's kernels, of its largest output: sums of up
to a few hundred products in another order."""
