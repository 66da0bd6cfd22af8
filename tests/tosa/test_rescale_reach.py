"""Scales that fixed point does not reach: refused in words while lowering, never by the engine."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stepwell
from stepwell.ir.diagnostics import UnsupportedError

from .arm_quantized import dequantize, quantize, rounded
from .graphs import Of


def hundreds(*shape: int) -> Tensor:
    """A quantized weight."""
    return dequantize(torch.full(shape, 100, dtype=torch.int8), 0.1, 0)


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
    "convolution": lambda x: F.conv2d(x, hundreds(2, 2, 3, 3)),
    "linear": lambda x: F.linear(x, hundreds(4, 4)),
}
FAR = {"beyond any shift": (1.0, 1e-12), "beyond 31 bits": (10000.0, 0.001)}


def between(layer: Callable[..., Tensor], given: Any, made: Any, other: Any = None) -> Of:
    """A layer of one or two quantized values, whose result has a scale of its own."""

    def quantized(x: Tensor, *others: Tensor) -> Tensor:
        values = [rounded(x, *given), *(rounded(y, *other) for y in others)]
        return rounded(layer(*values), *made)

    return Of(quantized)


@pytest.mark.parametrize("target", ["tosa-1.0+int", "cortex-m55"])
@pytest.mark.parametrize("far", FAR)
def test_no_artifact_asks_for_more_than_its_engine_takes(target: str, far: str) -> None:
    taken: list[str] = []
    for name, layer in LAYERS.items():
        given = torch.linspace(-100, 100, 32).reshape(1, 2, 4, 4) * FAR[far][0]
        model = between(layer, *((scale, 3) for scale in FAR[far]))
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


FINE, COARSE, MADE = (0.001, 7, 16), (0.002, 9, 16), (0.003, -3, 16)


CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "requantize": lambda x, _=None: x,
    "cat": lambda x, y: torch.cat([x, y]),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:, :2], 1, 0, 2),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_zero_point_of_16_bits_is_subtracted_and_added_in_int32(choice: str) -> None:
    """RESCALE of TOSA 1.0 does not take one (its ERROR_IF)."""
    module = between(CHOICES[choice], FINE, MADE, COARSE)
    torch.manual_seed(0)
    given = (torch.randn(4, 8) * 12, torch.randn(4, 8) * 24)[: 1 if choice == "requantize" else 2]
    lowered = stepwell.lower(torch.export.export(module, given), "tosa-1.0+int+int16")
    integers = [quantize(x, *held) for x, held in zip(given, (FINE, COARSE), strict=False)]
    (engine,), (meant,) = (  # The reference model refuses what the specification does.
        [made] if isinstance(made, Tensor) else made
        for made in (lowered.run(*integers), lowered.program.run(*integers))
    )
    assert torch.equal(engine, meant)
    expected = quantize(module(*given), *MADE)
    assert (engine.int() - expected.int()).abs().max() <= 1
