"""Conv-TasNet (Luo and Mesgarani 2019): two voices from one line of samples."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

FILTERS, LENGTH, CHANNELS, HIDDEN, VOICES = 32, 8, 16, 24, 2


class GlobalLayerNorm(nn.Module):
    """Mean and variance over channels and time together."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, channels, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        variance = torch.pow(x - mean, 2).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (x - mean) / torch.pow(variance + 1e-8, 0.5) + self.beta


class TemporalBlock(nn.Module):
    """A bottleneck around a dilated depthwise convolution."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(CHANNELS, HIDDEN, 1, bias=False),
            nn.PReLU(),
            GlobalLayerNorm(HIDDEN),
            nn.Conv1d(
                HIDDEN, HIDDEN, 3, padding=dilation, dilation=dilation, groups=HIDDEN, bias=False
            ),
            nn.PReLU(),
            GlobalLayerNorm(HIDDEN),
            nn.Conv1d(HIDDEN, CHANNELS, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + x


class ConvTasNet(nn.Module):
    """``[batch, samples]`` to ``[batch, VOICES, samples]``."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, FILTERS, LENGTH, stride=LENGTH // 2, bias=False)
        self.norm = GlobalLayerNorm(FILTERS)
        self.bottleneck = nn.Conv1d(FILTERS, CHANNELS, 1, bias=False)
        self.blocks = nn.Sequential(*(TemporalBlock(2**level) for level in range(3)))
        self.masks = nn.Conv1d(CHANNELS, VOICES * FILTERS, 1, bias=False)
        self.decoder = nn.ConvTranspose1d(FILTERS, 1, LENGTH, stride=LENGTH // 2, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        batch, samples = mixture.shape
        weights = F.relu(self.encoder(mixture.unsqueeze(1)))
        score = self.masks(self.blocks(self.bottleneck(self.norm(weights))))
        mask = F.softmax(score.view(batch, VOICES, FILTERS, -1), dim=1)
        voices = (weights.unsqueeze(1) * mask).view(batch * VOICES, FILTERS, -1)
        voices = self.decoder(voices).view(batch, VOICES, -1)
        return F.pad(voices, (0, samples - voices.shape[-1]))


def conv_tasnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two voices in 402 samples; the last two belong to no frame."""
    return randomize(ConvTasNet()), (random_input(1, 402),)
