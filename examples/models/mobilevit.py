"""MobileViT-XXS (Mehta and Rastegari 2022): transformers over the pixels of each 2x2 patch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
) -> nn.Sequential:
    """Convolution without bias, padded to its size, batch norm and optionally SiLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([nn.SiLU()] if act else []))


class InvertedResidual(nn.Module):
    """MobileNetV2's block, twice as wide inside, with SiLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.is_residual = stride == 1 and inputs == outputs
        hidden = 2 * inputs
        self.layers = nn.Sequential(
            conv_norm(inputs, hidden, 1),
            conv_norm(hidden, hidden, 3, stride, groups=hidden),
            conv_norm(hidden, outputs, 1, act=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class TransformerBlock(nn.Module):
    """A pre-norm transformer block with four heads and an MLP of twice the width."""

    HEADS = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )

    def attend(self, x: Tensor) -> Tensor:
        """Multi-head self-attention over ``[batch, tokens, width]``."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.HEADS, width // self.HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MobileViTBlock(nn.Module):
    """Local convolutions, a transformer across patches for each pixel position in a patch, and
    fusion.
    """

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.local = conv_norm(channels, channels, 3)
        self.into = nn.Conv2d(channels, width, 1, bias=False)
        self.blocks = nn.Sequential(*(TransformerBlock(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.out_of = conv_norm(width, channels, 1)
        self.fuse = conv_norm(2 * channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(self.local(x))
        batch, width, rows, columns = y.shape
        patches = (rows // 2) * (columns // 2)
        # [batch * width * rows/2, 2, columns/2, 2] -> [batch * 4, patches, width]
        y = y.reshape(batch * width * (rows // 2), 2, columns // 2, 2).transpose(1, 2)
        y = y.reshape(batch, width, patches, 4).transpose(1, 3).reshape(batch * 4, patches, width)
        y = self.norm(self.blocks(y))
        y = y.reshape(batch, 4, patches, width).transpose(1, 3)
        y = y.reshape(batch * width * (rows // 2), columns // 2, 2, 2).transpose(1, 2)
        y = self.out_of(y.reshape(batch, width, rows, columns))
        return self.fuse(torch.cat((x, y), dim=1))


class MobileViT(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_norm(3, 16, 3, 2),
            InvertedResidual(16, 16, 1),
            InvertedResidual(16, 24, 2),
            InvertedResidual(24, 24, 1),
            InvertedResidual(24, 24, 1),
            InvertedResidual(24, 48, 2),
            MobileViTBlock(48, 64, 2),
            InvertedResidual(48, 64, 2),
            MobileViTBlock(64, 80, 4),
            InvertedResidual(64, 80, 2),
            MobileViTBlock(80, 96, 3),
            conv_norm(80, 320, 1),
        )
        self.classifier = nn.Linear(320, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(image), 1).flatten(1))


def mobilevit_xxs() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """At 256 px: 1.3 M parameters."""
    return randomize(MobileViT()), (random_input(1, 3, 256, 256),)
