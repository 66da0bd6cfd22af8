"""Random nets of what quantized models are made of: a draw is a module and an input that fits it.

A net is a list of steps on a pool of values. Each step names a layer whose condition holds for the
shape it is given; values stay of moderate size, so that int8 has something to resolve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite
from torch import nn

MOST_ELEMENTS = 1500

Values = list[torch.Tensor]
Step = Callable[["Net", Values], torch.Tensor]


class Net(nn.Module):
    """Runs its steps; the last value is the output."""

    def __init__(self, steps: list[Step], layers: list[nn.Module]) -> None:
        super().__init__()
        self.steps, self.layers = steps, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for step in self.steps:
            values.append(step(self, values))
        return values[-1]


@dataclass(frozen=True)
class Drawn:
    """A net, an input, and the words of its steps (for reading a failure)."""

    net: Net
    input: torch.Tensor
    words: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Drawn({tuple(self.input.shape)}: {'; '.join(self.words)})"


class Scale(nn.Module):
    """A parameter that broadcasts."""

    def __init__(self, shape: tuple[int, ...], low: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.rand(shape) + low)


def convolution(draw: DrawFn, shape: Any) -> tuple[str, nn.Module] | None:
    _, channels, *size = shape
    flat = len(size) == 1
    kernel = draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2))
    padding: Any = draw(st.sampled_from([0, 1, "same"]))
    reach = dilation * (kernel - 1) + 1
    grown = [d + (2 * padding if padding != "same" else reach) for d in size]
    if min(grown) < reach:
        return None
    groups = draw(st.sampled_from([1, 1, channels]))
    outputs = groups * draw(st.integers(1, 2)) if groups > 1 else draw(st.integers(1, 6))
    stride = 1 if padding == "same" else draw(st.integers(1, 2))
    options: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    cls = nn.Conv1d if flat else nn.Conv2d
    said = ", ".join(f"{k}={v}" for k, v in options.items())
    return f"conv({outputs}, {kernel}, {said})", cls(channels, outputs, kernel, **options)


def transposed(draw: DrawFn, shape: Any) -> tuple[str, nn.Module] | None:
    if len(shape) != 4 or shape[2] * shape[3] > 40:
        return None
    kernel, stride = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    padding = draw(st.integers(0, 1))
    layer = nn.ConvTranspose2d(shape[1], draw(st.integers(1, 4)), kernel, stride, padding)
    return f"conv_transpose({layer.out_channels}, {kernel}, {stride}, {padding})", layer


def linear(draw: DrawFn, shape: Any) -> tuple[str, nn.Module]:
    outputs, bias = draw(st.integers(1, 10)), draw(st.booleans())
    return f"linear({outputs}, bias={bias})", nn.Linear(shape[-1], outputs, bias=bias)


def broadcast(draw: DrawFn, shape: Any) -> tuple[str, nn.Module]:
    per = draw(st.sampled_from(["last", "channel", "one"]))
    if per == "channel" and len(shape) >= 3:
        size = (shape[1],) + (1,) * (len(shape) - 2)
    else:
        size = (shape[-1],) if per == "last" else (1,)
    return f"with {size}", Scale(size, 0.5)


LAYERS: dict[str, tuple[Any, Any]] = {
    "conv": (lambda s: len(s) in (3, 4), convolution),
    "conv_transpose": (lambda s: len(s) == 4, transposed),
    "linear": (lambda s: s[-1] <= 64, linear),
    "add parameter": (lambda s: True, broadcast),
    "mul parameter": (lambda s: True, broadcast),
}
APPLY: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    "add parameter": lambda layer, x: x + layer.value,
    "mul parameter": lambda layer, x: x * layer.value,
}

UNARY: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (lambda s: True, F.relu),
    "relu6": (lambda s: True, F.relu6),
    "sigmoid": (lambda s: True, torch.sigmoid),
    "hardswish": (lambda s: True, F.hardswish),
    "gelu": (lambda s: True, F.gelu),
    "leaky_relu": (lambda s: True, F.leaky_relu),
    "clamp": (lambda s: True, lambda x: torch.clamp(x, -0.4, 0.9)),
    "1 - x": (lambda s: True, lambda x: 1 - x),
    "0.5 x + 1": (lambda s: True, lambda x: x * 0.5 + 1.0),
    "avg_pool": (lambda s: len(s) == 4 and min(s[2:]) >= 2, lambda x: F.avg_pool2d(x, 2)),
    "avg_pool padded": (
        lambda s: len(s) == 4 and min(s[2:]) >= 3,
        lambda x: F.avg_pool2d(x, 3, 2, 1),
    ),
    "max_pool": (lambda s: len(s) == 4 and min(s[2:]) >= 2, lambda x: F.max_pool2d(x, 2)),
    "pool to one": (lambda s: len(s) == 4, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "mean of images": (lambda s: len(s) == 4, lambda x: x.mean((2, 3))),
    "mean of 1": (lambda s: len(s) == 3, lambda x: x.mean(1)),
    "sum of last": (lambda s: len(s) >= 2, lambda x: x.sum(-1)),
    "sum of 1": (lambda s: len(s) == 3, lambda x: x.sum(1)),
    "mean of last": (lambda s: len(s) >= 2, lambda x: x.mean(-1, keepdim=True)),
    "squeeze, excite": (
        lambda s: len(s) == 4,
        lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    ),
    "flatten": (lambda s: len(s) > 2, lambda x: torch.flatten(x, 1)),
    "transpose": (lambda s: len(s) > 1, lambda x: x.transpose(-1, -2)),
    "permute": (lambda s: len(s) == 4, lambda x: x.permute(0, 2, 3, 1)),
    "pad": (lambda s: len(s) > 1, lambda x: F.pad(x, (1, 0) if x.dim() < 4 else (1, 0, 0, 2))),
    "pad channels": (lambda s: len(s) == 4, lambda x: F.pad(x, (0, 0, 0, 0, 1, 1))),
    "slice": (lambda s: s[1] > 2 if len(s) > 1 else False, lambda x: x[:, 1:3]),
    "softmax": (lambda s: True, lambda x: F.softmax(x, -1)),
    "softmax of 1": (lambda s: len(s) > 2, lambda x: F.softmax(x, 1)),
    "attend to itself": (
        lambda s: len(s) == 3,
        lambda x: F.softmax(x @ x.transpose(1, 2) * 0.3, -1) @ x,
    ),
    "flip and cat": (lambda s: True, lambda x: torch.cat([x, x.flip([-1])], -1)),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "div": lambda a, b: a / (b.abs() + 0.5),
    "cat": lambda a, b: torch.cat([a, F.relu(b)], -1),
}
SHAPES = [(1, 3, 6, 6), (2, 4, 5, 5), (1, 1, 7, 4), (2, 3, 9), (1, 4, 8), (3, 8), (2, 5, 6), (6,)]


@composite
def nets(draw: DrawFn, most: int = 6) -> Drawn:
    """A net of up to `most` steps with random weights, and an input."""
    torch.manual_seed(draw(st.integers(0, 1 << 16)))
    x = torch.randn(draw(st.sampled_from(SHAPES)))
    shapes, steps, layers, words = [tuple(x.shape)], [], [], []
    values = [x]
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(max(0, len(values) - 3), len(values) - 1))
        made = _step(draw, shapes, at, layers)
        if made is None:
            continue
        word, step = made
        with torch.no_grad():
            result = step(Net([], layers), values)
        if not 0 < result.numel() <= MOST_ELEMENTS:
            continue
        steps.append(step)
        words.append(f"{word} of {at}")
        values.append(result)
        shapes.append(tuple(result.shape))
    if not steps:
        steps.append(lambda net, held: F.relu(held[0]))
        words.append("relu of 0")
    return Drawn(Net(steps, layers), x, tuple(words))


def _step(
    draw: DrawFn, shapes: list[tuple[int, ...]], at: int, layers: list[nn.Module]
) -> tuple[str, Step] | None:
    shape = shapes[at]
    others = [i for i, other in enumerate(shapes) if other == shape]
    kinds = [f"layer {n}" for n, (fits, _) in LAYERS.items() if fits(shape)]
    kinds += [n for n, (fits, _) in UNARY.items() if fits(shape)]
    kinds += [f"pair {n}" for n in BINARY] if len(others) > 1 else []
    kind = draw(st.sampled_from(kinds))
    if kind.startswith("layer "):
        name = kind.removeprefix("layer ")
        made = LAYERS[name][1](draw, shape)
        if made is None:
            return None
        place = len(layers)
        layers.append(made[1])
        function = APPLY.get(name, lambda layer, x: layer(x))
        word = made[0] if name not in APPLY else f"{name} {made[0]}"
        return word, lambda net, held: function(net.layers[place], held[at])
    if kind.startswith("pair "):
        other = draw(st.sampled_from([i for i in others if i != at]))
        pair = BINARY[kind.removeprefix("pair ")]
        return f"{kind} with {other}", lambda net, held: pair(held[at], held[other])
    alone = UNARY[kind][1]
    return kind, lambda net, held: alone(held[at])
