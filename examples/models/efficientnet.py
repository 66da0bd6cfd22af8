"""EfficientNet-B0 (Tan and Le 2019)."""

from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution without bias, padded to its size, and batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class SqueezeExcite(nn.Module):
    """Channels gated by a sigmoid of two 1x1 convolutions over their means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.silu(self.reduce(x.mean((2, 3), keepdim=True)))
        return x * self.expand(gate).sigmoid()


class MBConv(nn.Module):
    """An inverted residual with squeeze and excite."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.is_residual = stride == 1 and inputs == outputs
        hidden = inputs * expansion
        expand = [conv_norm(inputs, hidden, 1), nn.SiLU()] if expansion != 1 else []
        self.layers = nn.Sequential(
            *expand,
            conv_norm(hidden, hidden, kernel, stride, groups=hidden),
            nn.SiLU(),
            SqueezeExcite(hidden, inputs // 4),
            conv_norm(hidden, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class EfficientNet(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    # expansion, kernel, stride of the first, channels, blocks (table 1 of the paper)
    STAGES = (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2), nn.SiLU()]
        channels = 32
        for expansion, kernel, first_stride, outputs, count in self.STAGES:
            for stride in (first_stride, *[1] * (count - 1)):
                layers.append(MBConv(channels, outputs, expansion, kernel, stride))
                channels = outputs
        self.features = nn.Sequential(*layers, conv_norm(channels, 1280, 1), nn.SiLU())
        self.drop = nn.Dropout(0.2)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(image), 1).flatten(1)
        return self.classifier(self.drop(x))


def efficientnet_b0() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """At 224 px: 5.3 M parameters."""
    return randomize(EfficientNet()), (random_input(1, 3, 224, 224),)
