"""Vocoders: HiFi-GAN (Kong et al. 2020), and one with snake activations (Ziyin et al. 2020, as in
BigVGAN).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from random_weights import random_input, randomize

MELS, CHANNELS = 16, 32
UPSAMPLING = ((4, 8), (2, 4))
"""Stride and kernel of each step."""


class ResBlock(nn.Module):
    """Pairs of a dilated convolution and one without dilation, each pair with a residual."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding="same"))
            for d in dilations
        )
        self.convs2 = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel, padding="same")) for _ in dilations
        )

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            y = second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
            x = y + x
        return x


class HiFiGAN(nn.Module):
    """``[batch, MELS, frames]`` to ``[batch, 1, 8 * frames]``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(MELS, CHANNELS, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for level, (stride, kernel) in enumerate(UPSAMPLING):
            before, after = CHANNELS >> level, CHANNELS >> (level + 1)
            padding = (kernel - stride) // 2
            up = nn.ConvTranspose1d(before, after, kernel, stride, padding=padding)
            self.ups.append(weight_norm(up))
            self.blocks.append(ResBlock(after, 3, (1, 3)))
            self.blocks.append(ResBlock(after, 5, (1, 3)))
        self.conv_post = weight_norm(nn.Conv1d(CHANNELS >> len(UPSAMPLING), 1, 7, padding=3))

    def forward(self, mels: Tensor) -> Tensor:
        x = self.conv_pre(mels)
        for level, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, 0.1))
            sums = None
            for block in self.blocks[2 * level : 2 * level + 2]:
                sums = block(x) if sums is None else sums + block(x)
            x = sums / 2
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


class Snake(nn.Module):
    """``x + sin²(αx) / α``, one α for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        x = x.reshape(shape[0], shape[1], -1)
        x = x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)
        return x.reshape(shape)


class ResidualUnit(nn.Module):
    """A snake and a dilated convolution, a snake and a pointwise one, and a residual."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        pad = 3 * dilation
        self.block = nn.Sequential(
            Snake(channels),
            weight_norm(nn.Conv1d(channels, channels, 7, dilation=dilation, padding=pad)),
            Snake(channels),
            weight_norm(nn.Conv1d(channels, channels, 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class SnakeVocoder(nn.Sequential):
    """A decoder of latent frames, as in neural codecs."""

    def __init__(self) -> None:
        super().__init__(
            weight_norm(nn.Conv1d(MELS, CHANNELS, 7, padding=3)),
            Snake(CHANNELS),
            weight_norm(nn.ConvTranspose1d(CHANNELS, 16, 8, stride=4, padding=2)),
            ResidualUnit(16, 1),
            ResidualUnit(16, 3),
            Snake(16),
            weight_norm(nn.Conv1d(16, 1, 7, padding=3)),
            nn.Tanh(),
        )


def hifigan() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """24 frames, 192 samples."""
    return randomize(HiFiGAN()), (random_input(1, MELS, 24),)


def snake_vocoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """24 frames, 96 samples."""
    return randomize(SnakeVocoder()), (random_input(1, MELS, 24),)
