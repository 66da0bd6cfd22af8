"""Lower audio models with a spectrogram front end or an inverse one, and compare with PyTorch.

    python tools/audio_models.py [NAME …]

The models are small, with random weights, in the form of the published ones that they are named
after. Printed: the error as a share of the largest number, delegates, operators outside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import export

import stepwell

fft: Any = torch.fft


class Model(nn.Module):
    """Layers by name, a window, and the function that uses them."""

    def __init__(
        self, run: Callable[[Any, Tensor], Tensor], window: int, **layers: nn.Module
    ) -> None:
        super().__init__()
        self.run = run
        self.register_buffer("window", torch.hann_window(window))
        self.register_buffer("bands", torch.rand(window // 2 + 1, 40))
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def spectrum(m: Any, x: Tensor, hop: int) -> Tensor:
    """Transform the frames of a signal."""
    return torch.stft(x, len(m.window), hop, window=m.window, return_complex=True)


def signal(m: Any, z: Tensor, hop: int) -> Tensor:
    """Return the signal of a spectrum."""
    return torch.istft(z, len(m.window), hop, window=m.window)


def whisper(m: Any, x: Tensor) -> Tensor:
    """Log-mel features and convolutions."""
    power = spectrum(m, x, 160)[..., :-1].abs() ** 2
    mel = (power.mT @ m.bands).clamp(min=1e-10).log10().mT
    return m.net((torch.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0)


def vocos(m: Any, x: Tensor) -> Tensor:
    """Convolutions, then magnitudes and phases of an inverse transform."""
    size, phase = m.net(x).chunk(2, 1)
    size = size.exp().clamp(max=1e2)
    return signal(m, size * (phase.cos() + 1j * phase.sin()), 64)


def denoiser(m: Any, x: Tensor) -> Tensor:
    """A complex mask from real and imaginary parts, as in DCCRN and GTCRN."""
    z = torch.view_as_real(spectrum(m, x, 128))
    mask = m.net(z.permute(0, 3, 1, 2)).tanh()
    one, other = z[..., 0], z[..., 1]
    real = one * mask[:, 0] - other * mask[:, 1]
    imaginary = other * mask[:, 0] + one * mask[:, 1]
    return signal(m, torch.complex(real, imaginary), 128)


def deep_filter(m: Any, x: Tensor) -> Tensor:
    """Complex filters over neighboring frames, as in DeepFilterNet."""
    z = spectrum(m, x, 120)
    taps = torch.view_as_complex(m.net(z.abs().mT).tanh().unflatten(-1, (3, -1, 2)))
    padded = F.pad(z, (2, 0))
    frames = torch.stack([padded[..., i : i + z.shape[-1]] for i in range(3)], 2)
    return signal(m, (frames * taps.permute(0, 3, 2, 1)).sum(2), 120)


def hybrid(m: Any, x: Tensor) -> Tensor:
    """A branch of the spectrum and one of the waveform, as in HTDemucs."""
    z = torch.view_as_real(spectrum(m, x, 128)).permute(0, 3, 1, 2)
    z = m.net(z).permute(0, 2, 3, 1).contiguous()
    return signal(m, torch.view_as_complex(z), 128) + m.wave(x[:, None])[:, 0]


def fnet(m: Any, x: Tensor) -> Tensor:
    """Mixing by a transform of tokens and features."""
    return m.net(fft.fft(fft.fft(x, dim=-1), dim=-2).real + x)


def operator(m: Any, x: Tensor) -> Tensor:
    """A Fourier neural operator's layer."""
    z = fft.rfft(m.net(x))[..., :12] * torch.view_as_complex(m.bands[:12, :2].contiguous())
    return F.gelu(fft.irfft(F.pad(z, (0, 21)), n=64))


def correlation(m: Any, x: Tensor) -> Tensor:
    """Correlation in the frequency domain, as in Autoformer."""
    z = fft.rfft(x, dim=1)
    return m.net(fft.irfft(z * z.conj(), dim=1, n=x.shape[1]).softmax(1) * x)


def conv(*sizes: int) -> nn.Conv1d:
    """Return a padded convolution."""
    return nn.Conv1d(*sizes, padding=sizes[2] // 2)


MODELS: dict[str, tuple[Model, tuple[int, ...]]] = {
    "whisper": (Model(whisper, 400, net=conv(40, 32, 3)), (1, 16000)),
    "vocos": (Model(vocos, 256, net=conv(80, 258, 7)), (1, 80, 50)),
    "denoiser": (Model(denoiser, 512, net=nn.Conv2d(2, 2, 3, padding=1)), (1, 8192)),
    "deep filter": (Model(deep_filter, 240, net=nn.Linear(121, 726)), (1, 4800)),
    "hybrid": (
        Model(hybrid, 512, net=nn.Conv2d(2, 2, 3, padding=1), wave=conv(1, 1, 9)),
        (1, 8192),
    ),
    "fnet": (Model(fnet, 4, net=nn.Linear(64, 64)), (1, 32, 64)),
    "operator": (Model(operator, 64, net=conv(1, 16, 1)), (1, 1, 64)),
    "correlation": (Model(correlation, 4, net=nn.Linear(32, 32)), (1, 96, 32)),
}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or MODELS:
        model, shape = MODELS[name]
        x = torch.randn(shape)
        lowered = stepwell.lower(export(model.eval(), (x,)), "xnnpack")
        wanted = model(x)
        (found,) = stepwell.run_pte(lowered.to_pte(), [x])
        error = float((found - wanted).abs().max() / wanted.abs().max())
        outside = ", ".join(name.split(".")[1] for name in lowered.report.outside)
        print(f"| {name} | {error:.1e} | {lowered.report.delegates} | {outside} |", flush=True)
