"""The graphs that ExecuTorch 1.5.1 silently miscompiles or crashes on, and close variants.

Each with both quantizers, for an MVE and a DSP core: every op within one unit of real arithmetic,
the result near the PT2E graph's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer


class Net(nn.Module):
    """Layers by name and a forward given as a function."""

    def __init__(self, forward: Callable[..., torch.Tensor], **layers: Any) -> None:
        super().__init__()
        torch.manual_seed(7)
        for name, layer in layers.items():
            setattr(self, name, layer() if callable(layer) else layer)
        self.function = forward

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self, *inputs)


def conv(inputs: int = 3, outputs: int = 6, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def linear(inputs: int = 12, outputs: int = 10, bias: bool = True) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(inputs, outputs, bias=bias)


def parameter(*shape: int) -> Callable[[], nn.Parameter]:
    return lambda: nn.Parameter(torch.randn(shape) * 0.3)


IMAGE, ROWS, TOKENS = (1, 3, 8, 8), (4, 12), (2, 5, 12)

GRAPHS: dict[str, tuple[Callable[..., torch.Tensor], dict[str, Any], tuple[int, ...]]] = {
    "cat of a fused and an unfused convolution": (
        lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], 1),
        {"a": conv(), "b": conv()},
        IMAGE,
    ),
    "cat of three, one clamped": (
        lambda s, x: torch.cat([s.a(x), F.relu6(s.b(x)), s.a(F.relu(x))], 1),
        {"a": conv(), "b": conv()},
        IMAGE,
    ),
    "cat of two convolutions, flattened": (
        lambda s, x: s.c(torch.flatten(torch.cat([F.relu(s.a(x)), s.b(x)], 1), 1)),
        {"a": conv(), "b": conv(), "c": linear(768, 5)},
        IMAGE,
    ),
    "cat of a parameter and a convolution, flattened": (
        lambda s, x: s.c(torch.flatten(torch.cat([s.w, s.a(x)], 1), 1)),
        {"a": conv(), "w": parameter(1, 2, 8, 8), "c": linear(512, 5)},
        IMAGE,
    ),
    "slice of a convolution, flattened": (
        lambda s, x: s.c(torch.flatten(s.a(x)[:, 1:4], 1)),
        {"a": conv(), "c": linear(192, 5)},
        IMAGE,
    ),
    "cat of a fused and an unfused linear": (
        lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], -1),
        {"a": linear(), "b": linear()},
        ROWS,
    ),
    "cat of linears without bias": (
        lambda s, x: torch.cat([F.relu(s.a(x)), s.b(x)], -1),
        {"a": linear(bias=False), "b": linear(bias=False)},
        ROWS,
    ),
    "linear with a relu and another user": (
        lambda s, x: torch.cat([F.relu(y := s.a(x)), s.b(y)], -1),
        {"a": linear(), "b": linear(10, 4)},
        ROWS,
    ),
    "linear, relu and a sum with itself": (
        lambda s, x: F.relu(y := s.a(x)) + y,
        {"a": linear()},
        ROWS,
    ),
    "linear, permute, relu": (
        lambda s, x: F.relu(s.a(x).permute(0, 2, 1)),
        {"a": linear()},
        TOKENS,
    ),
    "linear, reshape, relu": (
        lambda s, x: F.relu(s.a(x).reshape(10, 10)),
        {"a": linear()},
        TOKENS,
    ),
    "where on a linear's sign": (
        lambda s, x: torch.where(s.a(x) > 0, x[:, :10], -x[:, :10]),
        {"a": linear()},
        ROWS,
    ),
    "linear with a clamp and another user": (
        lambda s, x: torch.cat([torch.clamp(y := s.a(x), -0.2, 0.4), y * 2.0], -1),
        {"a": linear()},
        ROWS,
    ),
    "linear over a transposed weight": (
        lambda s, x: F.linear(x, s.w.t(), s.b),
        {"w": parameter(12, 7), "b": parameter(7)},
        ROWS,
    ),
    "product with a parameter": (lambda s, x: x @ s.w, {"w": parameter(12, 7)}, ROWS),
    "product of tokens with a parameter": (
        lambda s, x: F.relu(x @ s.w),
        {"w": parameter(12, 7)},
        TOKENS,
    ),
    "softmax over 1000 classes": (
        lambda s, x: F.softmax(s.a(x), -1),
        {"a": linear(12, 1000)},
        ROWS,
    ),
    "average pool without padding": (
        lambda s, x: F.avg_pool2d(F.relu(s.a(x)), 2),
        {"a": conv()},
        IMAGE,
    ),
    "average pool that counts its padding": (
        lambda s, x: F.avg_pool2d(F.relu(s.a(x)), 3, 2, 1),
        {"a": conv()},
        IMAGE,
    ),
    "dilated convolution": (
        lambda s, x: F.relu(s.a(x)),
        {"a": lambda: nn.Conv2d(3, 5, 3, padding=2, dilation=2)},
        IMAGE,
    ),
    "addmm": (
        lambda s, x: torch.addmm(s.b, x, s.w),
        {"w": parameter(12, 7), "b": parameter(7)},
        ROWS,
    ),
    "scalars": (lambda s, x: F.relu(s.a(x) * 0.5 + 1.0), {"a": linear()}, ROWS),
    "one minus x": (lambda s, x: 1 - s.a(x), {"a": linear()}, ROWS),
    "broadcast add": (
        lambda s, x: s.a(x) + s.b,
        {"a": linear(), "b": parameter(10)},
        ROWS,
    ),
    "broadcast along channels": (
        lambda s, x: F.relu(s.a(x) * s.g + s.b),
        {"a": conv(), "g": parameter(6, 1, 1), "b": parameter(1, 6, 1, 1)},
        IMAGE,
    ),
    "one-dimensional convolution": (
        lambda s, x: F.relu(s.a(x)),
        {"a": lambda: nn.Conv1d(5, 4, 3, padding=1)},
        TOKENS,
    ),
    "even kernel with same padding": (
        lambda s, x: s.a(x),
        {"a": lambda: nn.Conv2d(3, 4, 4, padding="same")},
        IMAGE,
    ),
    "grouped convolution": (
        lambda s, x: s.b(s.a(x)),
        {"a": conv(), "b": conv(6, 4, groups=2)},
        IMAGE,
    ),
    "flatten after a convolution": (
        lambda s, x: s.b(torch.flatten(F.relu(s.a(x)), 1)),
        {"a": conv(), "b": linear(384, 5)},
        IMAGE,
    ),
    "squeeze and excite": (
        lambda s, x: (y := s.a(x)) * torch.sigmoid(s.b(y.mean((2, 3), keepdim=True))),
        {"a": conv(), "b": lambda: nn.Conv2d(6, 6, 1)},
        IMAGE,
    ),
}


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    forward, layers, shape = GRAPHS[name]
    return Net(forward, **layers), torch.randn(shape)


STOCK_QUANTIZER_CRASHES = {"product with a parameter", "product of tokens with a parameter"}
"""ExecuTorch's quantizer raises on a matmul with a parameter, so there is no graph to lower."""


@pytest.mark.parametrize("name", GRAPHS)
def test_the_lowered_program_computes_what_the_pt2e_graph_computes(
    name: str, lower: Any, quantizer: Any
) -> None:
    module, x = build(name)
    if name in STOCK_QUANTIZER_CRASHES and not isinstance(quantizer, CortexMQuantizer):
        with pytest.raises(AttributeError, match="to_tensor"):
            lower.module(module, x, quantizer=quantizer)
        return
    result = lower.module(module, x, quantizer=quantizer)
    result.check(x)
    result.check(torch.randn_like(x) * 0.7)


STAYS_FLOAT = {"softmax over 1000 classes": "511 is the longest safe one"}


@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in STAYS_FLOAT])
def test_nothing_is_left_to_float_when_everything_is_annotated(name: str, lower: Any) -> None:
    module, x = build(name)
    result = lower.module(module, x)
    assert not result.floats, result.refusals
    assert result.ops["cmsis.dequantize_per_tensor"] == 1


@pytest.mark.parametrize("name", STAYS_FLOAT)
def test_what_stays_a_float_says_why(name: str, lower: Any) -> None:
    module, x = build(name)
    result = lower.module(module, x)
    said = " ".join(r.reason for r in result.refusals) + " ".join(result.floats)
    assert STAYS_FLOAT[name] in said


def test_an_average_pool_without_padding_has_no_pad(lower: Any) -> None:
    module, x = build("average pool without padding")
    assert lower.module(module, x).ops["cmsis.pad"] == 0


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per row"])
def test_a_flattened_image_is_not_transposed_for_its_linear_layer(
    per_channel: bool, lower: Any
) -> None:
    module, x = build("flatten after a convolution")
    quantizer = CortexMQuantizer(per_channel_linear=per_channel)
    result = lower.module(module, x, quantizer=quantizer)
    result.check(x)
    # The input's alone is left: this model was traced as NCHW.
    assert result.ops["cmsis.transpose"] == 1
