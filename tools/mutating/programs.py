"""The programs to mutate: small ones in float32 and in int8, and models of the examples.

Each program is a module, an input, and eager's result. The int8 ones are the same modules after a
quantizer, given by its name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell
from stepwell.quantization.quantizers import QUANTIZERS

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
Net = tuple[nn.Module, Tensor]


class Of(nn.Module):
    """A function of an input and layers, as a module."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def _attention(x: Tensor, project: nn.Module, out: nn.Module) -> Tensor:
    q, k, v = project(x).reshape(1, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1)
    return out((weights @ v).transpose(1, 2).reshape(1, 6, 8)) + x


def _curves(x: Tensor) -> Tensor:
    low = F.hardswish(x) + F.silu(x) * F.softplus(x, 2.0)
    return torch.clamp(F.relu6(low), 0.5, 4.0) + F.gelu(x, approximate="tanh") - F.elu(x, 0.5)


def _more_curves(x: Tensor) -> Tensor:
    y = F.mish(x) + F.selu(x) + F.celu(x, 0.75) + F.logsigmoid(x) + F.hardsigmoid(x)
    return F.softshrink(y, 0.25) + F.leaky_relu(x, 0.1) + F.threshold(x, 0.0, 0.0)


def _sums(x: Tensor) -> Tensor:
    y = torch.lerp(x, x * 2.0, 0.7) + torch.addcmul(x, x, x, value=0.5)
    return torch.addcdiv(y, x, x * x + 2.0) / 4.0 - torch.rsub(x, 1.0) + (x + 0.0) * 1.0 * 3.0


def _rows(x: Tensor) -> Tensor:
    y = F.log_softmax(x, -1) + torch.logsumexp(x, -1, keepdim=True)
    return y + torch.log1p(x * x) * torch.rsqrt(x * x + 1.0) + x.pow(2).mean(-1, True)


def _moves(x: Tensor) -> Tensor:
    y = x.transpose(0, 1).reshape(2, -1).view(4, -1).t().contiguous()
    y = y.reshape(4, 3, 2).movedim(0, 2).permute(1, 0, 2).flatten()
    return F.pad(y.reshape(6, 4)[1:5], (1, 2)).unsqueeze(0).expand(2, 4, 7).clone()


def _norms(x: Tensor, layer: nn.Module, group: nn.Module) -> Tensor:
    y = layer(x) + F.rms_norm(x, (8,), eps=1e-5)
    return group(y.transpose(1, 2)).transpose(1, 2) + x


def _image(x: Tensor, conv: nn.Module, norm: nn.Module, last: nn.Module) -> Tensor:
    y = F.relu6(norm(conv(x)))
    y = F.avg_pool2d(y, 2) + F.max_pool2d(y, 2)
    return last(y.mean((2, 3)))


def _gated(x: Tensor, gate: nn.Module, up: nn.Module, down: nn.Module) -> Tensor:
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    return x + down(F.silu(gate(y)) * up(y))


def _excited(x: Tensor, conv: nn.Module, wide: nn.Module, deep: nn.Module) -> Tensor:
    y = F.hardswish(wide(F.relu(conv(x))))
    return y * F.hardsigmoid(deep(y.mean((2, 3), keepdim=True))) + y


def _windows(x: Tensor, norm: nn.Module, mix: nn.Module) -> Tensor:
    y = torch.roll(norm(x), (-1, -1), (1, 2)).reshape(1, 2, 2, 2, 2, 8) * 0.5
    y = mix(y.permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 8)).reshape(1, 2, 2, 2, 2, 8)
    y = F.hardtanh(y, -2.0, 2.0)
    return x + torch.roll(y.permute(0, 1, 3, 2, 4, 5).reshape(1, 4, 4, 8), (1, 1), (1, 2))


def _deep(x: Tensor, conv: nn.Module, norm: nn.Module, up: nn.Module, down: nn.Module) -> Tensor:
    y = norm(conv(x).permute(0, 2, 3, 1))
    y = F.gelu(up(y), approximate="tanh") * 2.0
    return x + down(torch.relu(y)).permute(0, 3, 1, 2)


def _inverted(x: Tensor, wide: nn.Module, deep: nn.Module, thin: nn.Module) -> Tensor:
    return x + thin(F.relu6(deep(F.relu6(wide(x)))))


def _branches(x: Tensor, first: nn.Module, second: nn.Module, last: nn.Module) -> Tensor:
    y = torch.cat([F.relu(first(x)), second(x)], 1)
    return last(torch.flatten(F.max_pool2d(F.relu6(y), 2), 1))


def _layers(x: Tensor, first: nn.Module, second: nn.Module) -> Tensor:
    y = first(x)
    return torch.sigmoid(second(F.relu(y) + y).permute(0, 2, 1).reshape(1, -1)) * 2.0


def _conv(inputs: int, outputs: int, size: int = 3, groups: int = 1) -> nn.Module:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups)


ROWS, PLAIN, IMAGE, MAP, CELLS = (1, 6, 8), (6, 4), (1, 3, 8, 8), (1, 8, 6, 6), (1, 4, 4, 8)
SMALL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "curves": (lambda: Of(_curves), PLAIN),
    "more curves": (lambda: Of(_more_curves), PLAIN),
    "sums": (lambda: Of(_sums), PLAIN),
    "rows": (lambda: Of(_rows), PLAIN),
    "moves": (lambda: Of(_moves), PLAIN),
    "attention": (lambda: Of(_attention, nn.Linear(8, 24), nn.Linear(8, 8)), ROWS),
    "norms": (lambda: Of(_norms, nn.LayerNorm(8), nn.GroupNorm(2, 8)), ROWS),
    "image": (lambda: Of(_image, _conv(3, 4), nn.BatchNorm2d(4), nn.Linear(4, 5)), IMAGE),
    "gated": (lambda: Of(_gated, *(nn.Linear(8, 8, False) for _ in range(3))), ROWS),
    "excited": (lambda: Of(_excited, _conv(3, 4), _conv(4, 8, 1), _conv(8, 8, 1)), IMAGE),
    "windows": (lambda: Of(_windows, nn.LayerNorm(8), nn.Linear(8, 8)), CELLS),
    "deep": (
        lambda: Of(_deep, _conv(8, 8, 7, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)),
        MAP,
    ),
}
INTEGER: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "image": SMALL["image"],
    "excited": SMALL["excited"],
    "attention": SMALL["attention"],
    "inverted": (
        lambda: Of(_inverted, _conv(8, 16, 1), _conv(16, 16, 3, 16), _conv(16, 8, 1)),
        MAP,
    ),
    "branches": (lambda: Of(_branches, _conv(3, 4), _conv(3, 4), nn.Linear(128, 5)), IMAGE),
    "layers": (lambda: Of(_layers, nn.Linear(8, 8), nn.Linear(8, 8)), ROWS),
}
"""Modules that a quantizer treats as a unit."""
ZOO = (
    "tiny.mlp_autoencoder llama.llama_block gpt2.gpt2_2layers tiny.ds_cnn bert.bert t5.t5_block"
    " decoders.qwen3_block whisper.whisper_encoder mobilenet.mobilenet_v3_small"
    " vision.vit_with_registers"
).split()
ZOO_INTEGER = "tiny.mlp_autoencoder tiny.ds_cnn resnet.resnet8 quantized.small_conv_net".split()
ZOO_EVERY = 20
"""One of this number of seeds selects a model of the examples."""


@dataclass(frozen=True)
class Case:
    """A program, its inputs, and eager's result.

    Attributes:
        unit: the allowed error of a result per mutation: relative to the largest number, or for
            quantized ones in units of the last scale.
    """

    name: str
    program: Any
    inputs: tuple[Any, ...]
    wanted: Tensor
    unit: float


def name_of(kind: str, seed: int) -> str:
    """Return the program of a seed."""
    small, zoo = (SMALL, ZOO) if kind == "float32" else (INTEGER, ZOO_INTEGER)
    if seed % ZOO_EVERY == ZOO_EVERY - 1:
        return zoo[seed // ZOO_EVERY % len(zoo)]
    return list(small)[seed % len(small)]


@cache
def case(kind: str, name: str) -> Case:
    """Return a program by name: `float32`, or after a quantizer."""
    torch.manual_seed(0)
    if "." in name:
        sys.path[:0] = [str(MODELS)] if str(MODELS) not in sys.path else []
        file, function = name.split(".")
        module, inputs = getattr(importlib.import_module(file), function)()
    else:
        make, shape = (SMALL if kind == "float32" else INTEGER)[name]
        module, inputs = make(), (torch.randn(shape),)
    module = module.eval()
    if kind != "float32":
        module = QUANTIZERS[kind](module, inputs)
    exported = torch.export.export(module, inputs)
    with torch.no_grad():
        wanted = exported.module(check_guards=False)(*inputs)
    wanted = wanted if isinstance(wanted, Tensor) else torch.utils._pytree.tree_leaves(wanted)[0]
    largest = float(wanted.abs().max())
    unit = 3e-5 * largest if kind == "float32" else largest / 127
    return Case(name, stepwell.from_exported_program(exported), inputs, wanted, unit)
