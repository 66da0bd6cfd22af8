"""16-bit integers with a zero point, which RESCALE of TOSA 1.0 does not take (its ERROR_IF)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchao.quantization.pt2e import quantize_pt2e

import stepwell

SHORT = (-32768, 32767, torch.int16)
FINE, COARSE, MADE = (0.001, 7), (0.002, 9), (0.003, -3)


def stored(x: Tensor, scale: float, zero: int) -> Tensor:
    """The integers of a value."""
    assert quantize_pt2e  # Which declares the operators.
    return torch.ops.quantized_decomposed.quantize_per_tensor(x, scale, zero, *SHORT)


def rounded(x: Tensor, scale: float, zero: int) -> Tensor:
    """A value quantized and back."""
    back = torch.ops.quantized_decomposed.dequantize_per_tensor
    return back(stored(x, scale, zero), scale, zero, *SHORT)


def written(x: Tensor, y: Tensor) -> Tensor:
    """The second scale's elements among those of the first."""
    return torch.slice_scatter(x, y[:, :2], 1, 0, 2)


class Quantized(torch.nn.Module):
    """A choice of two values' elements, at a scale of its own."""

    def __init__(self, choice: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.choice = choice

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        x = rounded(x, *FINE)
        return rounded(self.choice(x, x if y is None else rounded(y, *COARSE)), *MADE)


CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "requantize": lambda x, _: x,
    "cat": lambda x, y: torch.cat([x, y]),
    "slice_scatter": written,
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_zero_point_of_16_bits_is_subtracted_and_added_in_int32(choice: str) -> None:
    module = Quantized(CHOICES[choice])
    torch.manual_seed(0)
    given = (torch.randn(4, 8) * 12, torch.randn(4, 8) * 24)[: 1 if choice == "requantize" else 2]
    lowered = stepwell.lower(torch.export.export(module, given), "tosa-1.0+int+int16")
    integers = [stored(x, *held) for x, held in zip(given, (FINE, COARSE), strict=False)]
    (engine,), (meant,) = (  # The reference model refuses what the specification does.
        [made] if isinstance(made, Tensor) else made
        for made in (lowered.run(*integers), lowered.program.run(*integers))
    )
    assert torch.equal(engine, meant)
    expected = stored(module(*given), *MADE)
    assert (engine.int() - expected.int()).abs().max() <= 1
