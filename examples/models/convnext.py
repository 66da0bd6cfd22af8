"""ConvNeXt-Atto (Liu et al. 2022), its pointwise layers written as convolutions or as linears."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of ``[batch, channels, height, width]``."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        return super().forward(x).permute(0, 3, 1, 2)


class ConvBlock(nn.Module):
    """Depthwise 7x7, norm, and two 1x1 convolutions, all channels-first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ChannelNorm(width, eps=1e-6)
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.project = nn.Conv2d(4 * width, width, 1)
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(F.gelu(self.expand(self.norm(self.depthwise(x)))))
        return x + y * self.gamma.reshape(1, -1, 1, 1)


class LinearBlock(nn.Module):
    """The same block with linear layers between two permutes, as in the paper's listing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand = nn.Linear(width, 4 * width)
        self.project = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.project(F.gelu(self.expand(self.norm(y)))) * self.gamma
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    def __init__(
        self,
        widths: tuple[int, ...],
        depths: tuple[int, ...],
        block: type[ConvBlock | LinearBlock],
        classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0], eps=1e-6)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if stage:
                before = widths[stage - 1]
                layers += [ChannelNorm(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
            layers += [block(width) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.norm = ChannelNorm(widths[-1], eps=1e-6)
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm(F.adaptive_avg_pool2d(self.features(image), 1))
        return self.classifier(x.flatten(1))


def convnext_atto() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Pointwise layers as 1x1 convolutions, 224 px: 3.7 M parameters."""
    model = ConvNeXt((40, 80, 160, 320), (2, 2, 6, 2), ConvBlock)
    return randomize(model), (random_input(1, 3, 224, 224),)


def convnext_atto_linear() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Pointwise layers as linears between permutes, 224 px: 3.7 M parameters."""
    model = ConvNeXt((40, 80, 160, 320), (2, 2, 6, 2), LinearBlock)
    return randomize(model), (random_input(1, 3, 224, 224),)
