"""WaveNet (van den Oord et al. 2016): gated causal convolutions whose dilation doubles."""

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from random_weights import randomize

CHANNELS, SKIPS, LEVELS, DILATIONS = 16, 24, 32, (1, 2, 4, 8)


class CausalConv1d(nn.Conv1d):
    """A causal convolution: padded on the left only."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


class Layer(nn.Module):
    """A gated convolution with a residual and a skip connection."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv = CausalConv1d(CHANNELS, 2 * CHANNELS, 2, dilation=dilation)
        self.residual = nn.Conv1d(CHANNELS, CHANNELS, 1)
        self.skip = nn.Conv1d(CHANNELS, SKIPS, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = self.conv(x).chunk(2, dim=1)
        y = torch.tanh(value) * torch.sigmoid(gate)
        return x + self.residual(y), self.skip(y)


class WaveNet(nn.Module):
    """``[batch, samples]`` of levels to logits ``[batch, LEVELS, samples]``."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LEVELS, CHANNELS)
        self.causal = CausalConv1d(CHANNELS, CHANNELS, 2)
        self.layers = nn.ModuleList([Layer(dilation) for dilation in DILATIONS])
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv1d(SKIPS, SKIPS, 1), nn.ReLU(), nn.Conv1d(SKIPS, LEVELS, 1)
        )

    def forward(self, samples: Tensor) -> Tensor:
        x = self.causal(self.embedding(samples).transpose(1, 2))
        skips: list[Tensor] = []
        for layer in self.layers:
            x, skip = layer(x)
            skips.append(skip)
        return self.head(torch.stack(skips).sum(dim=0))


def wavenet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """64 samples."""
    return randomize(WaveNet()), (torch.arange(64)[None] * 7 % LEVELS,)


def wavenet_of_any_length() -> tuple[nn.Module, tuple[Tensor, ...], object]:
    """A dynamic number of samples."""
    return *wavenet(), ({1: Dim("samples", min=2, max=256)},)
