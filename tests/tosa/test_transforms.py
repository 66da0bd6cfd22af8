"""Fourier transforms of `+fft`: the parts of what they give, on the reference model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell

TARGET = "tosa-1.0+fp+fft"
Function = Callable[[Tensor], Any]
fft: Any = torch.fft


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def filtered(x: Tensor) -> Tensor:
    """A product in the frequency domain."""
    y = fft.rfft(x)
    return fft.irfft(y * y, norm="ortho")


CASES: dict[str, Function] = {
    "magnitudes": lambda x: fft.rfft(x).abs(),
    "parts": lambda x: (fft.rfft(x).real, fft.rfft(x).imag),
    "another axis": lambda x: torch.view_as_real(fft.rfft(x, dim=1, norm="ortho")),
    "two axes": lambda x: torch.view_as_real(fft.rfft2(x, dim=(2, 1), norm="forward")),
    "all points": lambda x: torch.view_as_real(fft.fft(x).mT),
    "there and back": filtered,
    "back to two points": lambda x: fft.irfft(fft.rfft(x[..., :2]), n=2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_transform_is_torchs(name: str) -> None:
    model, x = Of(CASES[name]), torch.randn(2, 8, 16)
    lowered = stepwell.lower(torch.export.export(model, (x,)), TARGET)
    expected = model(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found in (lowered.run(x), lowered.program.run(x)):
        torch.testing.assert_close(tuple(found), expected, rtol=1e-5, atol=2e-5)


def of_twelve(x: torch.Tensor) -> torch.Tensor:
    return fft.rfft(x[..., :12]).abs()


@pytest.mark.parametrize(
    ("function", "target", "reason"),
    [
        (CASES["magnitudes"], "tosa-1.0+fp", r"tosa-1.0\+fp\+fft has it"),
        (of_twelve, TARGET, "TOSA's are of powers of two"),
        (fft.rfft, TARGET, "TOSA has no complex numbers"),
    ],
)
def test_what_has_no_form_says_why(function: Function, target: str, reason: str) -> None:
    exported = torch.export.export(Of(function), (torch.randn(2, 8, 16),))
    with pytest.raises(stepwell.StepwellError, match=reason):
        stepwell.lower(exported, target)
