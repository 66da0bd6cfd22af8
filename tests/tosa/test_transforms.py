"""Fourier transforms: the parts of what they give, on the reference model."""

from typing import Any

import pytest
import torch
from torch import Tensor

import stepwell

from .graphs import Function, agree, lowered

TARGET = "tosa-1.0+fp+fft"
fft: Any = torch.fft


WINDOW = torch.hann_window(8)


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
    "of complex numbers": lambda x: torch.view_as_real(fft.ifft(fft.fft2(x) * 0.5, dim=1)),
    "three axes and back": lambda x: fft.irfftn(fft.rfftn(x, dim=(0, 1, 2)), dim=(0, 1, 2)),
    "no power of two": lambda x: fft.irfft2(fft.rfft2(x[..., :15], norm="ortho"), s=(8, 15)),
    "arithmetic": lambda x: (fft.rfft(x) - -fft.rfft(x).conj() * x[..., :9]).mT[..., 1:].imag,
    "angles": lambda x: torch.cat([fft.rfft(x)[..., 1:8], torch.complex(x, x)], -1)[0].angle(),
    "frames": lambda x: torch.stft(x[0], 8, 3, window=WINDOW, return_complex=True).abs(),
    "frames and back": lambda x: torch.istft(
        torch.stft(x[0], 8, 3, window=WINDOW, return_complex=True) * 2, 8, 3, window=WINDOW
    ),
    "frames of complex numbers": lambda x: torch.istft(
        torch.complex(x[:, :5], x[:, 3:]), 8, 4, window=WINDOW, length=40, normalized=True
    ),
    "frames with a short window": lambda x: torch.view_as_real(
        torch.stft(x[0], 12, 2, 8, WINDOW, normalized=True, onesided=False, return_complex=True)
    ),
}


@pytest.mark.parametrize("target", [TARGET, "tosa-1.0+fp"])
@pytest.mark.parametrize("name", CASES)
def test_a_transform_is_torchs(name: str, target: str) -> None:
    agree(CASES[name], torch.randn(2, 8, 16), target=target, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("function", "target", "reason"),
    [
        (lambda x: fft.rfft(x, n=8191).abs(), TARGET, "8191 points needs a matrix"),
        (fft.rfft, TARGET, "TOSA has no complex numbers"),
        (lambda x: fft.rfft(x) * 1j, TARGET, "factor is a complex|complex numbers"),
    ],
)
def test_what_has_no_form_says_why(function: Function, target: str, reason: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=reason):
        lowered(function, torch.randn(2, 8, 16), target=target)
