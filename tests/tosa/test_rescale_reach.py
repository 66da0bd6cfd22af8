"""Scales that fixed point does not reach: refused in words while lowering, never by the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchao.quantization.pt2e import quantize_pt2e

import stepwell
from stepwell.ir.diagnostics import UnsupportedError

LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "requantize": lambda x: x,
    "clamp": lambda x: x.clamp(-1, 1),
    "average": lambda x: F.avg_pool2d(x, 2),
    "maximum": lambda x: F.max_pool2d(x, 2),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "resize": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "sum": lambda x: x + x.flip(3),
    "product": lambda x: x * x.flip(3),
    "matmul": lambda x: x @ x.flip(3),
    "cat": lambda x: torch.cat([x, x.flip(3)], 1),
    "convolution": lambda x: F.conv2d(x, held(torch.full((2, 2, 3, 3), 100), 0.1)),
    "linear": lambda x: F.linear(x, held(torch.full((4, 4), 100), 0.1)),
}
FAR = {"beyond any shift": (1.0, 1e-12), "beyond 31 bits": (10000.0, 0.001)}


def held(steps: Tensor, scale: float, zero: int = 0) -> Tensor:
    """What stored integers stand for."""
    assert quantize_pt2e  # Which declares the operators.
    back = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    return back(steps.to(torch.int8), scale, zero, -128, 127, torch.int8)


def rounded(x: Tensor, scale: float) -> Tensor:
    """A value quantized and back."""
    made = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return held(made(x, scale, 3, -128, 127, torch.int8), scale, 3)


class Quantized(torch.nn.Module):
    """A layer between two scales."""

    def __init__(self, layer: Callable[[Tensor], Tensor], given: float, made: float) -> None:
        super().__init__()
        self.layer, self.given, self.made = layer, given, made

    def forward(self, x: Tensor) -> Tensor:
        return rounded(self.layer(rounded(x, self.given)), self.made)


@pytest.mark.parametrize("target", ["tosa-1.0+int", "cortex-m55"])
@pytest.mark.parametrize("far", FAR)
def test_no_artifact_asks_for_more_than_its_engine_takes(target: str, far: str) -> None:
    taken: list[str] = []
    for name, layer in LAYERS.items():
        model = Quantized(layer, *FAR[far])
        given = torch.linspace(-100, 100, 32).reshape(1, 2, 4, 4) * FAR[far][0]
        exported = torch.export.export(model, (given,), strict=False)
        try:
            lowered = stepwell.lower(exported, target)
        except UnsupportedError as error:
            assert "beyond" in str(error) or "past int32" in str(error), f"{name}: {error}"
            continue
        if target.startswith("tosa"):
            given = (given / FAR[far][0]).clamp(-128, 127).to(torch.int8)
        lowered.run(given)
        taken.append(name)
    assert len(taken) < len(LAYERS) or not target.startswith("tosa")
