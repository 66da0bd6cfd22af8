"""MobileNetV2 (Sandler et al. 2018) and MobileNetV3-Small (Howard et al. 2019)."""

from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

Activation = type[nn.ReLU | nn.ReLU6 | nn.Hardswish]


def divisible(channels: float, by: int = 8) -> int:
    """Round ``channels`` to a multiple of ``by``, never down by more than a tenth."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    act: Activation | None = None,
) -> nn.Sequential:
    """Convolution padded to its size, batch norm and, unless None, an activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    layers = [conv, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


class SqueezeExcite(nn.Module):
    """Channels gated by a hard sigmoid of two 1x1 convolutions over their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = divisible(channels / 4)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(gate)


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise, optional squeeze and excite, project 1x1; residual if shapes agree."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        kernel: int,
        stride: int,
        act: Activation,
        squeeze: bool = False,
    ) -> None:
        super().__init__()
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *([conv_norm(inputs, hidden, 1, act=act)] if hidden != inputs else []),
            conv_norm(hidden, hidden, kernel, stride, groups=hidden, act=act),
            *([SqueezeExcite(hidden)] if squeeze else []),
            conv_norm(hidden, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class MobileNetV2(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    # expansion, channels, blocks, stride of the first
    STAGES = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        channels = divisible(32 * width)
        blocks: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU6)]
        for expansion, outputs, count, first_stride in self.STAGES:
            outputs = divisible(outputs * width)
            for stride in (first_stride, *[1] * (count - 1)):
                hidden = channels * expansion
                blocks.append(InvertedResidual(channels, hidden, outputs, 3, stride, nn.ReLU6))
                channels = outputs
        last = divisible(1280 * max(1.0, width))
        self.features = nn.Sequential(*blocks, conv_norm(channels, last, 1, act=nn.ReLU6))
        self.drop = nn.Dropout(0.2)
        self.classifier = nn.Linear(last, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(image), 1).flatten(1)
        return self.classifier(self.drop(x))


class MobileNetV3Small(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    # kernel, hidden, outputs, squeeze, activation, stride (table 2 of the paper)
    BLOCKS = (
        (3, 16, 16, True, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1),
        (5, 144, 48, True, nn.Hardswish, 1),
        (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1),
        (5, 576, 96, True, nn.Hardswish, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        channels = 16
        blocks: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.Hardswish)]
        for kernel, hidden, outputs, squeeze, act, stride in self.BLOCKS:
            blocks.append(InvertedResidual(channels, hidden, outputs, kernel, stride, act, squeeze))
            channels = outputs
        self.features = nn.Sequential(*blocks, conv_norm(96, 576, 1, act=nn.Hardswish))
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(image), 1).flatten(1))


def mobilenet_v2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Width 1.0 at 224 px: 3.5 M parameters."""
    return randomize(MobileNetV2()), (random_input(1, 3, 224, 224),)


def mobilenet_v2_035() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Width 0.35 at 96 px, a size for microcontrollers: 1.7 M parameters."""
    return randomize(MobileNetV2(0.35)), (random_input(1, 3, 96, 96),)


def mobilenet_v3_small() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """At 224 px: 2.5 M parameters."""
    return randomize(MobileNetV3Small()), (random_input(1, 3, 224, 224),)
