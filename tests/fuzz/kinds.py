"""Further kinds of random program: with state, with sizes known at run time, quantized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite
from programs import BINARY, UNARY

Stateful = Callable[[torch.Tensor, dict[str, torch.Tensor]], torch.Tensor]

ROWWISE = sorted({*UNARY} - {"flatten", "unsqueeze", "squeeze", "to_double"})
"""Operations that leave the shape as it is."""


def _accumulate(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["total"].add_(x)
    return state["total"] * 0.5


def _decay(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    old = state["total"].clone()
    state["total"].mul_(0.5).add_(torch.tanh(x))
    return old + x


def _write_row(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["cache"][1] = x[0]
    return x + state["cache"][: x.shape[0]]


def _write_at(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["cache"].index_put_((state["step"].reshape(1) % 8,), x[:1])
    state["step"].add_(1)
    return torch.tanh(state["cache"].sum(0, keepdim=True)) + x


def _shift(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["cache"].copy_(torch.cat([state["cache"][1:], x[-1:]]))
    return x * 0.5 + state["cache"][0]


def _copy_view(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["total"].t().copy_(torch.cos(x).t())
    return state["total"] + 1.0


def _into_input(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    return x.clamp_(-2, 2).mul_(0.5)


STATEFUL: dict[str, Stateful] = {
    "accumulate": _accumulate,
    "decay": _decay,
    "write_row": _write_row,
    "write_at": _write_at,
    "shift": _shift,
    "copy_view": _copy_view,
    "in_place": _into_input,
}


class WithState(torch.nn.Module):
    """Steps on one value, some of which read and write buffers; the input may be written to."""

    def __init__(self, words: list[str], rows: int, width: int) -> None:
        super().__init__()
        self.words = words
        self.register_buffer("total", torch.randn(rows, width))
        self.register_buffer("cache", torch.randn(8, width))
        self.register_buffer("step", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = dict(self.named_buffers())
        for word in self.words:
            x = STATEFUL[word](x, state) if word in STATEFUL else UNARY[word](x)
        return x


@composite
def stateful(draw: DrawFn) -> tuple[WithState, list[torch.Tensor]]:
    """A module with buffers, and what it is called with one after the other."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    words = st.one_of(st.sampled_from(sorted(STATEFUL)), st.sampled_from(ROWWISE))
    steps = draw(st.lists(words, min_size=1, max_size=6))
    torch.manual_seed(draw(st.integers(0, 1000)))
    return WithState(steps, rows, width).eval(), [torch.randn(rows, width) for _ in range(3)]


@dataclass(frozen=True)
class Sized:
    """A module whose first dimension may vary from 3 to 12, and sizes to try it with."""

    module: torch.nn.Module
    width: int
    sizes: tuple[int, ...]
    words: tuple[str, ...]


class RowWise(torch.nn.Module):
    """Steps on a value of unknown rows and known width."""

    def __init__(self, words: list[str], width: int) -> None:
        super().__init__()
        self.words = words
        self.linear = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)
        self.constant = torch.nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x
        for word in self.words:
            x = _sized(self, word, x, first)
        return x


SIZED = (
    "linear", "norm", "constant", "softmax", "cat_last", "add_first", "reshape", "transpose",
    "matmul", "mean_rows", "expand", "narrow", "arange", "unbind", "cat_rows", "flatten",
)  # fmt: skip


def _sized(self: RowWise, word: str, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    rows, width = first.shape
    match word:
        case "linear":
            return self.linear(x)
        case "norm":
            return self.norm(x)
        case "constant":
            return x * self.constant
        case "softmax":
            return torch.softmax(x, 0)
        case "cat_last":
            return torch.cat([x, torch.tanh(x)], 1)[:, :width]
        case "add_first":
            return BINARY["mul"](x, first)
        case "reshape":
            return x.reshape(rows, 1, width).tanh().reshape(-1, width)
        case "transpose":
            return torch.relu(x.t()).t()
        case "matmul":
            return torch.softmax(torch.tanh(x) @ torch.tanh(first).t(), -1) @ x
        case "mean_rows":
            return x - x.mean(0, keepdim=True)
        case "expand":
            return x + x[:1].expand(rows, width)
        case "narrow":
            return x + torch.cat([x[1:], x[:1]])
        case "arange":
            return x + torch.arange(rows)[:, None] / rows
        case "unbind":
            return x * torch.unbind(x, 1)[0][:, None]
        case "cat_rows":
            return torch.cat([x, x])[:rows]
        case "flatten":
            return torch.flatten(torch.sin(x)).reshape(rows, width)
        case _:
            return UNARY[word](x)


@composite
def sized(draw: DrawFn) -> Sized:
    """A module of dynamic rows."""
    width = draw(st.integers(2, 6))
    words = draw(
        st.lists(
            st.one_of(st.sampled_from(SIZED), st.sampled_from(ROWWISE)), min_size=1, max_size=6
        )
    )
    torch.manual_seed(draw(st.integers(0, 1000)))
    module = RowWise(words, width).eval().requires_grad_(False)
    return Sized(module, width, (5, 3, 12), tuple(words))


LAYERS = ("conv", "depthwise", "pointwise", "relu", "hardtanh", "pool", "residual", "sigmoid")


class Layers(torch.nn.Module):
    """A small convolutional net, which is what static quantization is for."""

    def __init__(self, words: list[str], channels: int) -> None:
        super().__init__()
        self.words = words
        nn = torch.nn
        made: dict[str, Callable[[], torch.nn.Module]] = {
            "conv": lambda: nn.Conv2d(channels, channels, 3, padding=1),
            "depthwise": lambda: nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            "pointwise": lambda: nn.Conv2d(channels, channels, 1),
            "relu": nn.ReLU,
            "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
            "pool": lambda: nn.MaxPool2d(3, 1, 1),
            "residual": nn.Identity,
            "sigmoid": nn.Sigmoid,
        }
        self.layers = nn.ModuleList(made[word]() for word in words)
        self.head = nn.Linear(channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x
        for word, layer in zip(self.words, self.layers, strict=True):
            x, before = (x + before if word == "residual" else layer(x)), x
        return self.head(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(x, 1), 1))


@composite
def layered(draw: DrawFn) -> tuple[Layers, tuple[torch.Tensor, ...], dict[str, Any]]:
    """A float net, inputs, and how to quantize it."""
    channels = draw(st.sampled_from([1, 2, 4, 8]))
    words = draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=5))
    torch.manual_seed(draw(st.integers(0, 1000)))
    options = {"per_channel": draw(st.booleans())}
    inputs = (torch.randn(1, channels, draw(st.integers(3, 8)), draw(st.integers(3, 8))),)
    return Layers(words, channels).eval(), inputs, options
