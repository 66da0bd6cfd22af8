"""Random torch programs: every draw is a module that runs, with inputs that fit it.

A program is a list of steps on a pool of values; each step names an operation whose condition
holds for the shapes at hand. Operations are continuous in their inputs and keep numbers of
moderate size, so that two correct implementations agree within the rounding of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite

MOST_ELEMENTS = 2048

Step = Callable[[list[torch.Tensor]], torch.Tensor]


@dataclass(frozen=True)
class Drawn:
    """A module, its inputs, and the words its steps were drawn by (for reading a failure)."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    steps: tuple[str, ...]

    def __repr__(self) -> str:
        shapes = ", ".join(str(tuple(x.shape)) for x in self.inputs)
        return f"Drawn({shapes}: {'; '.join(self.steps)})"


class Drawable(torch.nn.Module):
    """Runs its steps; parameters are held so that export sees them."""

    def __init__(self, steps: list[Step], parameters: list[torch.Tensor], last: int) -> None:
        super().__init__()
        self.steps, self.last = steps, last
        self.held = torch.nn.ParameterList(parameters)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step(values))
        return tuple(values[-self.last :])


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "hardswish": torch.nn.functional.hardswish,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "elu": torch.nn.functional.elu,
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "softplus": torch.nn.functional.softplus,
    "neg": torch.neg,
    "abs": torch.abs,
    "square": lambda x: torch.square(torch.tanh(x)),
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": lambda x: torch.exp(torch.clamp(x, -3, 2)),
    "log": lambda x: torch.log(torch.abs(x) + 0.5),
    "sqrt": lambda x: torch.sqrt(torch.abs(x) + 0.5),
    "rsqrt": lambda x: torch.rsqrt(torch.abs(x) + 0.5),
    "reciprocal": lambda x: torch.reciprocal(torch.abs(x) + 0.5),
    "clamp": lambda x: torch.clamp(x, -0.5, 0.75),
    "clamp_min": lambda x: torch.clamp(x, min=-0.25),
    "hardtanh": lambda x: torch.nn.functional.hardtanh(x, -0.75, 0.5),
    "relu6": torch.nn.functional.relu6,
    "add_scalar": lambda x: x + 1.5,
    "rsub_scalar": lambda x: 1 - x,
    "mul_scalar": lambda x: x * 0.5,
    "div_scalar": lambda x: x / 3,
    "pow2": lambda x: torch.clamp(x, -2, 2) ** 2,
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "inplace": lambda x: x.clone().add_(1).mul_(0.5),
    "masked_fill": lambda x: (x * 2).masked_fill(x < 0, 0.0),
    "clone": torch.clone,
    "to_double": lambda x: x.double().float(),
    "flatten": torch.flatten,
    "unsqueeze": lambda x: x.unsqueeze(0) if x.dim() < 5 else x,
    "squeeze": torch.squeeze,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda a, b: torch.mul(torch.tanh(a), b),
    "div": lambda a, b: torch.div(a, torch.abs(b) + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
}
DIMWISE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "mean": lambda x, d: x.mean(d),
    "mean_keep": lambda x, d: x.mean(d, keepdim=True),
    "sum": lambda x, d: x.sum(d) / x.shape[d],
    "amax": lambda x, d: x.amax(d, keepdim=True),
    "cat": lambda x, d: torch.cat([x, torch.tanh(x)], d),
    "stack": lambda x, d: torch.stack([x, x], d),
    "chunk": lambda x, d: torch.chunk(x, 2, d)[-1],
    "slice": lambda x, d: x.narrow(d, x.shape[d] // 2, x.shape[d] - x.shape[d] // 2),
    "step": lambda x, d: x.movedim(d, 0)[::2].movedim(0, d),
    "select": lambda x, d: x.select(d, -1),
    "flip": lambda x, d: torch.flip(x, [d]),
    "roll": lambda x, d: torch.roll(x, 1, d),
    "unbind": lambda x, d: torch.unbind(x, d)[0],
    "cumsum": lambda x, d: torch.cumsum(torch.tanh(x), d) / x.shape[d],
    "repeat": lambda x, d: torch.cat([x] * 2, d).narrow(d, 0, x.shape[d]),
    "inplace_slice": lambda x, d: _write(x, d),
    "to_last": lambda x, d: x.movedim(d, -1),
    "to_first": lambda x, d: x.movedim(d, 0),
}


def _write(x: torch.Tensor, dim: int) -> torch.Tensor:
    y = x * 1.25
    y.select(dim, 0).copy_(torch.zeros_like(y.select(dim, 0)))
    return y


@composite
def programs(draw: DrawFn, most_steps: int = 8) -> Drawn:
    """A module with its inputs."""
    rank = draw(st.integers(1, 4))
    shape = draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    torch.manual_seed(draw(st.integers(0, 1000)))
    inputs = (torch.randn(shape), torch.randn(shape))
    values = list(inputs)
    steps: list[Step] = []
    words: list[str] = []
    parameters: list[torch.Tensor] = []
    for _ in range(draw(st.integers(1, most_steps))):
        at = draw(st.integers(max(0, len(values) - 3), len(values) - 1))
        word, step = draw(_steps(values, at, parameters))
        made = step(values)
        if made.numel() == 0 or made.numel() > MOST_ELEMENTS or made.dim() == 0:
            continue
        values.append(made.detach())
        steps.append(step)
        words.append(f"{word}(v{at})")
    last = draw(st.integers(1, min(2, len(steps)))) if steps else 1
    module = Drawable(steps, parameters, last).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return Drawn(module, inputs, tuple(words))


@composite
def _steps(
    draw: DrawFn, values: list[torch.Tensor], at: int, parameters: list[torch.Tensor]
) -> tuple[str, Step]:
    x = values[at]
    kinds = ["unary", "unary", "dimwise", "permute", "reshape", "linear", "norm", "constant"]
    if any(v.shape == x.shape for i, v in enumerate(values) if i != at):
        kinds += ["binary", "binary"]
    if x.dim() == 4:
        kinds += ["conv", "pool", "batch_norm", "pixel"]
    if x.dim() in (2, 3):
        kinds += ["matmul"]
    kind = draw(st.sampled_from(kinds))
    return _MAKERS[kind](draw, values, at, parameters)


def _unary(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    word = draw(st.sampled_from(sorted(UNARY)))
    return word, lambda v: UNARY[word](v[at])


def _binary(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    word = draw(st.sampled_from(sorted(BINARY)))
    same = [i for i, v in enumerate(values) if v.shape == values[at].shape]
    other = draw(st.sampled_from(same))
    return f"{word}[v{other}]", lambda v: BINARY[word](v[at], v[other])


def _dimwise(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    word = draw(st.sampled_from(sorted(DIMWISE)))
    dim = draw(st.integers(0, values[at].dim() - 1))
    return f"{word}[{dim}]", lambda v: DIMWISE[word](v[at], dim)


def _permute(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    order = draw(st.permutations(range(values[at].dim())))
    return f"permute{order}", lambda v: v[at].permute(order)


def _reshape(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    count = values[at].numel()
    first = draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    shape = draw(st.sampled_from([(first, count // first), (count,), (1, first, -1)]))
    return f"reshape{shape}", lambda v: v[at].reshape(shape)


def _parameter(parameters: list[torch.Tensor], *shape: int) -> torch.Tensor:
    made = torch.nn.Parameter(torch.randn(shape) / max(1, shape[-1]) ** 0.5, requires_grad=False)
    parameters.append(made)
    return made


def _linear(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    out = draw(st.integers(1, 6))
    weight = _parameter(parameters, out, values[at].shape[-1])
    bias = _parameter(parameters, out) if draw(st.booleans()) else None
    return f"linear[{out}]", lambda v: torch.nn.functional.linear(v[at], weight, bias)


def _norm(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    width = values[at].shape[-1]
    scale, shift = _parameter(parameters, width), _parameter(parameters, width)
    return "layer_norm", lambda v: torch.nn.functional.layer_norm(
        v[at], (width,), scale, shift, 1e-3
    )


def _constant(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    shape = [d if draw(st.booleans()) else 1 for d in values[at].shape]
    constant = _parameter(parameters, *shape)
    word = draw(st.sampled_from(["add", "mul", "sub", "maximum"]))
    return f"{word}_const{shape}", lambda v: BINARY[word](v[at], constant)


def _conv(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    _, channels, height, width = values[at].shape
    kernel = (draw(st.integers(1, min(3, height))), draw(st.integers(1, min(3, width))))
    depthwise = draw(st.booleans())
    out = channels if depthwise else draw(st.integers(1, 5))
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    weight = _parameter(parameters, out, 1 if depthwise else channels, *kernel)
    bias = _parameter(parameters, out) if draw(st.booleans()) else None
    groups = channels if depthwise else 1
    return f"conv[{kernel} s{stride} p{padding} g{groups}]", lambda v: torch.conv2d(
        v[at], weight, bias, stride, padding, 1, groups
    )


def _pool(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    kernel = draw(st.integers(1, min(2, *values[at].shape[-2:])))
    word = draw(st.sampled_from(["max", "avg", "adaptive"]))
    functional = torch.nn.functional
    if word == "adaptive":
        return "adaptive_avg_pool", lambda v: functional.adaptive_avg_pool2d(v[at], 1)
    pool = functional.max_pool2d if word == "max" else functional.avg_pool2d
    return f"{word}_pool[{kernel}]", lambda v: pool(v[at], kernel)


def _batch_norm(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    channels = values[at].shape[1]
    mean, scale, shift = (_parameter(parameters, channels) for _ in range(3))
    variance = torch.nn.Parameter(torch.rand(channels) + 0.5, requires_grad=False)
    parameters.append(variance)
    return "batch_norm", lambda v: torch.nn.functional.batch_norm(
        v[at], mean, variance, scale, shift
    )


def _pixel(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    if values[at].shape[1] % 4 == 0:
        return "pixel_shuffle", lambda v: torch.pixel_shuffle(v[at], 2)
    return "pad", lambda v: torch.nn.functional.pad(v[at], (1, 0, 0, 1))


def _matmul(draw: DrawFn, values: Any, at: int, parameters: Any) -> tuple[str, Step]:
    return "matmul", lambda v: torch.tanh(v[at]) @ torch.tanh(v[at]).transpose(-1, -2) / 4


_MAKERS: dict[str, Any] = {
    "unary": _unary,
    "binary": _binary,
    "dimwise": _dimwise,
    "permute": _permute,
    "reshape": _reshape,
    "linear": _linear,
    "norm": _norm,
    "constant": _constant,
    "conv": _conv,
    "pool": _pool,
    "batch_norm": _batch_norm,
    "pixel": _pixel,
    "matmul": _matmul,
}
