"""Thirty-two more small nets, written when the C was done: a net is a function of its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _small_nets import Net
from torch import Tensor, nn


class Of(nn.Module):
    """A function of layers by name and of inputs."""

    def __init__(self, function: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


class Prefix(nn.Module):
    """Learned rows before those of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.layer = nn.Parameter(torch.randn(1, 4, 8) / 2), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.cat([self.rows, x], 1)).mean(1)


class Delay(nn.Module):
    """A convolution over time that keeps the last frames."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.layer = nn.Conv1d(6, 6, 3), nn.Linear(6, 3)
        self.register_buffer("past", torch.zeros(1, 6, 2))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([self.past, x], 2)
        self.past.copy_(y[:, :, -2:])
        return self.layer(F.relu(self.filter(y)).mean(2))


def ghost(net: Any, x: Tensor) -> Tensor:
    x = F.relu(net.a(x))
    return torch.cat([x, F.relu(net.b(x))], 1)


def squeeze(net: Any, x: Tensor) -> Tensor:
    x = net.a(x)
    return net.d(x * torch.sigmoid(net.c(F.silu(net.b(x.mean((2, 3), keepdim=True))))))


def shuffle(net: Any, x: Tensor) -> Tensor:
    n, c, h, w = (x := net.a(x)).shape
    return net.b(x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))


def pyramid(net: Any, x: Tensor) -> Tensor:
    fine = F.relu(net.a(x))
    return net.c(fine + F.interpolate(F.relu(net.b(fine)), size=fine.shape[2:], mode="nearest"))


def modulated(net: Any, x: Tensor, y: Tensor) -> Tensor:
    scale, shift = net.b(y).chunk(2, -1)
    return net.c(net.a(x) * (1 + scale)[:, :, None, None] + shift[:, :, None, None])


def voice(net: Any, x: Tensor) -> Tensor:
    return torch.sigmoid(net.c(net.b(F.relu(net.a(x)).transpose(1, 2))[0]))


def attention_pool(net: Any, x: Tensor) -> Tensor:
    x = torch.tanh(net.a(x))
    return net.c((x * torch.softmax(net.b(x), 1)).sum(1))


def mixer(net: Any, x: Tensor) -> Tensor:
    x = net.a(x).flatten(2).transpose(1, 2)
    return net.d((x + net.c(net.b(x).transpose(1, 2)).transpose(1, 2)).mean(1))


def soft_argmax(net: Any, x: Tensor) -> Tensor:
    share = torch.softmax(net.a(x).flatten(2), -1)
    return (share * torch.linspace(-1, 1, share.shape[-1])).sum(-1)


def capsules(net: Any, x: Tensor) -> Tensor:
    x = net.a(x).flatten(2).transpose(1, 2)
    squares = (x * x).sum(-1, keepdim=True)
    return x * (squares / (1 + squares)) / torch.sqrt(squares + 1e-6)


def einsum_attention(net: Any, x: Tensor) -> Tensor:
    return torch.einsum("bqd,bkd->bqk", net.a(x), net.b(x)).softmax(-1) @ net.c(x)


def pooled_by_size(net: Any, x: Tensor) -> Tensor:
    x = F.relu(net.a(x))
    return net.b(torch.cat([F.adaptive_avg_pool2d(x, k).flatten(1) for k in (1, 2, 3)], 1))


def pooled_by_window(net: Any, x: Tensor) -> Tensor:
    x = net.a(x)
    return net.b(torch.cat([x, *(F.max_pool2d(x, k, 1, k // 2) for k in (3, 5))], 1))


def image(height: int = 12, width: int = 11) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, height, width),)


def rows(count: int, width: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, count, width),)


def nets() -> dict[str, Callable[[], Net]]:
    """Name → what gives a net and an input."""
    conv, conv1, dense = nn.Conv2d, nn.Conv1d, nn.Linear
    return {
        "ghost": lambda: (Of(ghost, a=conv(3, 6, 1), b=conv(6, 6, 3, 1, 1, groups=6)), image()),
        "squeeze": lambda: (
            Of(squeeze, a=conv(3, 8, 3), b=conv(8, 4, 1), c=conv(4, 8, 1), d=conv(8, 4, 1)),
            image(),
        ),
        "channel_shuffle": lambda: (
            Of(shuffle, a=conv(3, 8, 3), b=conv(8, 8, 3, groups=2)),
            image(),
        ),
        "pyramid": lambda: (
            Of(pyramid, a=conv(3, 6, 3, padding=1), b=conv(6, 6, 3, 2, 1), c=conv(6, 2, 1)),
            image(),
        ),
        "modulated": lambda: (
            Of(modulated, a=conv(3, 6, 3), b=dense(5, 12), c=conv(6, 3, 1)),
            (*image(8, 8), torch.randn(1, 5)),
        ),
        "voice": lambda: (
            Of(voice, a=conv1(10, 8, 3, 2), b=nn.GRU(8, 6, batch_first=True), c=dense(6, 1)),
            rows(10, 15),
        ),
        "attention_pool": lambda: (
            Of(attention_pool, a=dense(8, 8), b=dense(8, 1), c=dense(8, 3)),
            rows(7, 8),
        ),
        "mixer": lambda: (
            Of(
                mixer, a=conv(3, 8, 4, 4), b=nn.LayerNorm(8), d=dense(8, 5),
                c=nn.Sequential(dense(9, 18), nn.GELU(), dense(18, 9)),
            ),
            image(12, 12),
        ),
        "soft_argmax": lambda: (Of(soft_argmax, a=conv(3, 4, 3)), image(10, 10)),
        "siamese": lambda: (
            Of(
                lambda net, x, y: F.cosine_similarity(net.a(x), net.a(y), dim=-1),
                a=nn.Sequential(dense(10, 8), nn.ReLU(), dense(8, 6)),
            ),
            (torch.randn(1, 10), torch.randn(1, 10)),
        ),
        "gated": lambda: (
            Of(lambda net, x: net.b(F.glu(net.a(x), 1)), a=conv1(6, 12, 3), b=conv1(6, 4, 1)),
            rows(6, 14),
        ),
        "dilated_branches": lambda: (
            Of(
                lambda net, x: net.d(F.relu(net.a(x)) + F.relu(net.b(x)) + F.relu(net.c(x))),
                a=conv(3, 4, 3, 1, 1), b=conv(3, 4, 3, 1, 2, 2), c=conv(3, 4, 3, 1, 3, 3),
                d=conv(4, 2, 1),
            ),
            image(),
        ),
        "capsules": lambda: (Of(capsules, a=conv(3, 6, 3, 2)), image()),
        "clamped": lambda: (
            Of(
                lambda net, x: net.b(torch.clamp(net.a(x), -0.3, 0.7)).abs(),
                a=conv(3, 6, 3), b=conv(6, 4, 1),
            ),
            image(),
        ),
        "reflected": lambda: (
            Of(lambda net, x: net.a(F.pad(x, (1, 2, 0, 1), mode="reflect")), a=conv(3, 4, 3)),
            image(),
        ),
        "replicated": lambda: (
            Of(lambda net, x: net.a(F.pad(x, (1, 1, 1, 1), mode="replicate")), a=conv(3, 4, 3, 2)),
            image(),
        ),
        "einsum_attention": lambda: (
            Of(einsum_attention, a=dense(8, 8), b=dense(8, 8), c=dense(8, 8)),
            rows(6, 8),
        ),
        "pooled_by_size": lambda: (
            Of(pooled_by_size, a=conv(3, 4, 3), b=dense(56, 5)),
            image(14, 14),
        ),
        "pooled_by_window": lambda: (
            Of(pooled_by_window, a=conv(3, 4, 3), b=conv(12, 3, 1)),
            image(),
        ),
        "layer_norm_2d": lambda: (
            Of(
                lambda net, x: net.c(net.b(net.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)),
                a=conv(3, 8, 4, 4), b=nn.LayerNorm(8), c=conv(8, 4, 1),
            ),
            image(12, 12),
        ),
        "frames": lambda: (
            Of(lambda net, x: net.a(x.unfold(1, 4, 2).flatten(2)), a=dense(20, 4)),
            rows(12, 5),
        ),
        "cumulative": lambda: (
            Of(lambda net, x: net.a(torch.cumsum(x, 1)), a=dense(6, 4)),
            rows(8, 6),
        ),
        "over_time": lambda: (
            Of(lambda net, x: net.a(torch.sqrt((x * x).mean(1) + 1e-3)), a=dense(6, 4)),
            rows(8, 6),
        ),
        "filterbank": lambda: (
            Of(lambda net, x: torch.log(net.a(x).abs() + 1e-3).mean(-1), a=conv1(1, 6, 8, 4)),
            rows(1, 64),
        ),
        "rows_by_index": lambda: (
            Of(lambda net, x: net.a(x[:, [0, 3, 1]]), a=dense(6, 4)),
            rows(5, 6),
        ),
        "hardswish_skip": lambda: (
            Of(
                lambda net, x: net.b(F.hardswish(net.a(x))) + net.c(x),
                a=conv(3, 6, 3), b=conv(6, 4, 1), c=conv(3, 4, 3),
            ),
            image(),
        ),
        "two_by_one_layer": lambda: (
            Of(lambda net, x, y: torch.bmm(net.a(x), net.a(y).transpose(1, 2)), a=dense(6, 8)),
            (*rows(5, 6), *rows(7, 6)),
        ),
        "delay": lambda: (Delay(), rows(6, 3)),
        "prefix": lambda: (Prefix(), rows(5, 8)),
        "transposed_odd": lambda: (
            nn.Sequential(
                conv(3, 6, 3), nn.ConvTranspose2d(6, 4, 5, 3, 2, output_padding=2), nn.ReLU6()
            ),
            image(),
        ),
        "lstm_of_two": lambda: (
            Of(
                lambda net, x: net.b(net.a(x)[0]),
                a=nn.LSTM(6, 5, 2, batch_first=True), b=dense(5, 3),
            ),
            rows(4, 6),
        ),
        "norms_folded": lambda: (
            nn.Sequential(
                conv(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU6(), conv(6, 6, 3, groups=6),
                nn.BatchNorm2d(6), nn.ReLU6(), conv(6, 4, 1), nn.BatchNorm2d(4),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense(4, 3), nn.Softmax(-1),
            ),
            image(),
        ),
    }  # fmt: skip
