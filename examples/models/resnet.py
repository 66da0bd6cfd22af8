"""ResNet-18 and -50 (He et al. 2016), and the ResNet-8 of MLPerf Tiny (Banbury et al. 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, padded to its size, and batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A branch added to a shortcut, which is projected 1x1 if the shape changes."""

    def __init__(self, branch: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


def basic(inputs: int, width: int, stride: int) -> Residual:
    """Two 3x3 convolutions."""
    first, second = conv_norm(inputs, width, 3, stride), conv_norm(width, width, 3)
    return Residual(nn.Sequential(first, nn.ReLU(), second), inputs, width, stride)


def bottleneck(inputs: int, width: int, stride: int) -> Residual:
    """1x1, 3x3 and 1x1 to four times the width; the 3x3 has the stride."""
    branch = nn.Sequential(
        conv_norm(inputs, width, 1),
        nn.ReLU(),
        conv_norm(width, width, 3, stride),
        nn.ReLU(),
        conv_norm(width, 4 * width, 1),
    )
    return Residual(branch, inputs, 4 * width, stride)


class ResNet(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    def __init__(
        self, stem: nn.Sequential, blocks: list[Residual], width: int, classes: int
    ) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.blocks(self.stem(image))
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))


BlockMaker = Callable[[int, int, int], Residual]


def resnet(depths: tuple[int, ...], block: BlockMaker, expansion: int) -> ResNet:
    """The ImageNet form: a 7x7 stem, pooling, and four stages of 64 to 512 channels."""
    stem = nn.Sequential(conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks: list[Residual] = []
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            blocks.append(block(inputs, width, 2 if stage and not index else 1))
            inputs = width * expansion
    return ResNet(stem, blocks, inputs, 1000)


def randomize_residual(model: ResNet) -> ResNet:
    """``randomize``, with branches at half scale: otherwise each sum doubles the variance."""
    randomize(model)
    with torch.no_grad():
        for block in model.blocks:
            block.branch[-1][1].weight.mul_(0.5)
    return model


def resnet18() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """At 224 px: 11.7 M parameters."""
    return randomize_residual(resnet((2, 2, 2, 2), basic, 1)), (random_input(1, 3, 224, 224),)


def resnet50() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """At 224 px: 25.6 M parameters."""
    return randomize_residual(resnet((3, 4, 6, 3), bottleneck, 4)), (random_input(1, 3, 224, 224),)


def resnet8() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """CIFAR-10 at 32 px, three stages of one block: 78 k parameters."""
    stem = nn.Sequential(conv_norm(3, 16, 3), nn.ReLU())
    blocks = [basic(16, 16, 1), basic(16, 32, 2), basic(32, 64, 2)]
    return randomize_residual(ResNet(stem, blocks, 64, 10)), (random_input(1, 3, 32, 32),)
