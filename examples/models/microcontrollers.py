"""Models for microcontrollers, in addition to those of `tiny`, `resnet` and `mobilenet`."""

import torch
from torch import Tensor, nn

from mobilenet import InvertedResidual, MobileNetV2, conv_norm, divisible
from random_weights import random_input, randomize


def mobilenet_v1_025() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """MLPerf Tiny's visual wake words: MobileNetV1 of width 0.25 at 96 px, two classes."""
    # (outputs, stride) of each depthwise separable layer, at width 1.
    plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5)
    channels = 8
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU)]
    for outputs, stride in (*plan, (1024, 2), (1024, 1)):
        layers.append(conv_norm(channels, channels, 3, stride, channels, act=nn.ReLU))
        layers.append(conv_norm(channels, outputs // 4, 1, act=nn.ReLU))
        channels = outputs // 4
    head = (nn.AvgPool2d(3), nn.Flatten(), nn.Linear(channels, 2))
    return randomize(nn.Sequential(*layers, *head)), (random_input(1, 3, 96, 96),)


def mobilenet_v2_030() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """MobileNetV2 of width 0.30 at 80 px, for which the memory use of five engines is published."""
    return randomize(MobileNetV2(0.3, classes=1000)), (random_input(1, 3, 80, 80),)


def mcunet_like() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Inverted residuals with kernels of 3, 5 and 7 at 64 px, similar to MCUNet's
    search results.
    """
    # (expansion, kernel, outputs, stride)
    plan = (
        (3, 7, 16, 2),
        (3, 3, 16, 1),
        (4, 5, 24, 2),
        (5, 5, 24, 1),
        (5, 7, 40, 2),
        (4, 3, 40, 1),
    )
    channels = 8
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU6)]
    layers.append(InvertedResidual(channels, channels, channels, 3, 1, nn.ReLU6))
    for expansion, kernel, outputs, stride in plan:
        hidden = divisible(channels * expansion)
        layers.append(InvertedResidual(channels, hidden, outputs, kernel, stride, nn.ReLU6))
        channels = outputs
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return randomize(nn.Sequential(*layers, *head)), (random_input(1, 3, 64, 64),)


class ConvolutionalRecurrent(nn.Module):
    """``[1, 1, 40, 40]`` log-mels: two strided convolutions, a recurrent layer, 10 classes."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_norm(1, 8, 3, 2, act=nn.ReLU), conv_norm(8, 12, 3, 2, act=nn.ReLU)
        )
        self.rnn = kind(120, 32, batch_first=True)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.features(x).permute(0, 3, 1, 2).flatten(2)
        return self.fc(self.rnn(steps)[0][:, -1])


def crnn_gru() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Ten steps of a GRU over convolutional features."""
    return randomize(ConvolutionalRecurrent(nn.GRU)), (random_input(1, 1, 40, 40),)


def crnn_lstm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Ten steps of an LSTM over convolutional features."""
    return randomize(ConvolutionalRecurrent(nn.LSTM)), (random_input(1, 1, 40, 40),)


class DilatedBlock(nn.Module):
    """Two causal-length dilated convolutions over time around a residual."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        pad = dilation
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, (1, 3), padding=(0, pad), dilation=(1, dilation)),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, (1, 3), padding=(0, pad), dilation=(1, dilation)),
            nn.BatchNorm2d(outputs),
        )
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.skip(x))


def tcn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Three dilated blocks over 100 steps of 16 values, 8 classes."""
    blocks = (DilatedBlock(16, 32, 1), DilatedBlock(32, 32, 2), DilatedBlock(32, 32, 4))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8))
    return randomize(nn.Sequential(*blocks, *head)), (random_input(1, 16, 1, 100),)


class UNet(nn.Module):
    """``[1, 3, 48, 48]`` to one map of the same size, with two levels and their skips."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [conv_norm(3, 8, 3, act=nn.ReLU), conv_norm(8, 16, 3, act=nn.ReLU)]
        )
        self.bottom = conv_norm(16, 32, 3, act=nn.ReLU)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.merge = nn.ModuleList(
            [conv_norm(32, 16, 3, act=nn.ReLU), conv_norm(16, 8, 3, act=nn.ReLU)]
        )
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        x = self.bottom(nn.functional.max_pool2d(second, 2))
        x = self.merge[0](torch.cat([self.up[0](x), second], 1))
        x = self.merge[1](torch.cat([self.up[1](x), first], 1))
        return self.head(x)


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A segmentation net of two levels."""
    return randomize(UNet()), (random_input(1, 3, 48, 48),)
