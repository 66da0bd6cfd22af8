"""wav2vec 2.0 (Baevski et al. 2020) with a head for letters, over raw samples."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from random_weights import random_input, randomize

CHANNELS, WIDTH, HEADS, LETTERS = 16, 32, 4, 12
KERNELS, STRIDES = (10, 3, 3, 2), (5, 2, 2, 2)


class FeatureExtractor(nn.Module):
    """Strided convolutions of samples; a norm of each channel follows the first."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, *[CHANNELS] * len(KERNELS))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(widths[i], widths[i + 1], k, stride=s, bias=False)
            for i, (k, s) in enumerate(zip(KERNELS, STRIDES, strict=True))
        )
        self.norm = nn.GroupNorm(CHANNELS, CHANNELS, affine=True)

    def forward(self, samples: Tensor) -> Tensor:
        x = samples[:, None]
        for index, convolution in enumerate(self.convolutions):
            x = convolution(x)
            x = F.gelu(self.norm(x) if index == 0 else x)
        return x


class PositionalConvolution(nn.Module):
    """A wide grouped convolution with weight norm along its kernel; an even one drops the end."""

    def __init__(self) -> None:
        super().__init__()
        convolution = nn.Conv1d(WIDTH, WIDTH, 16, padding=8, groups=4)
        self.conv = weight_norm(convolution, name="weight", dim=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x.transpose(1, 2))
        return F.gelu(x[:, :, :-1]).transpose(1, 2)


class Layer(nn.Module):
    """A post-norm layer of an encoder; heads are folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.v, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, frames, _ = x.shape
        shape = (batch * HEADS, -1, WIDTH // HEADS)

        def split(x: Tensor) -> Tensor:
            x = x.view(batch, frames, HEADS, WIDTH // HEADS).transpose(1, 2)
            return x.contiguous().view(*shape)

        q, k, v = split(self.q(x) * (WIDTH // HEADS) ** -0.5), split(self.k(x)), split(self.v(x))
        weights = F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1)
        y = torch.bmm(weights, v).view(batch, HEADS, frames, WIDTH // HEADS)
        y = y.transpose(1, 2).reshape(batch, frames, WIDTH)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Wav2Vec2(nn.Module):
    """``[batch, samples]`` to logits ``[batch, frames, LETTERS]``."""

    def __init__(self) -> None:
        super().__init__()
        self.features = FeatureExtractor()
        self.norm = nn.LayerNorm(CHANNELS)
        self.project = nn.Linear(CHANNELS, WIDTH)
        self.positions = PositionalConvolution()
        self.layer_norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.features(samples).transpose(1, 2)
        x = self.project(self.norm(x))
        x = self.layer_norm(x + self.positions(x))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def wav2vec2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """2000 samples, 48 frames."""
    return randomize(Wav2Vec2()), (random_input(1, 2000),)
