"""Swin-T (Liu et al. 2021): attention in windows, which every second block shifts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WINDOW = 7


def to_windows(x: Tensor) -> Tensor:
    """``[batch, height, width, c]`` -> ``[batch * windows, WINDOW * WINDOW, c]``."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, channels)


def from_windows(x: Tensor, height: int, width: int) -> Tensor:
    """The inverse of ``to_windows``."""
    x = x.view(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.shape[-1])


def relative_positions() -> Tensor:
    """Row of the bias table for each pair of positions in a window: ``[49, 49]``, int64."""
    side = torch.arange(WINDOW)
    places = torch.cartesian_prod(side, side)
    offset = places[:, None] - places[None] + WINDOW - 1
    return offset[..., 0] * (2 * WINDOW - 1) + offset[..., 1]


def shift_mask(size: int, shift: int) -> Tensor:
    """The mask between regions that the cyclic shift made adjacent: ``[windows, 1, 49, 49]``, 0 or
    -100.
    """
    region = torch.bucketize(
        torch.arange(size), torch.tensor([size - WINDOW, size - shift]), right=True
    )
    regions = to_windows((region[:, None] * 3 + region)[None, :, :, None])[..., 0]
    apart = regions[:, None, None, :] != regions[:, None, :, None]
    return apart * -100.0


class WindowAttention(nn.Module):
    """Self-attention inside each window, with a learned bias for each relative position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.bias_table = nn.Parameter(torch.empty((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("positions", relative_positions(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        windows, tokens, width = x.shape
        qkv = self.qkv(x).reshape(windows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.bias_table[self.positions.view(-1)].view(tokens, tokens, -1)
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            scores = scores + mask
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(windows, tokens, width))


class SwinBlock(nn.Module):
    """Window attention and MLP over ``[batch, size, size, width]``."""

    def __init__(self, width: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        mask = shift_mask(size, shift) if shift else None
        self.register_buffer("mask", mask, persistent=False)

    def attend(self, x: Tensor) -> Tensor:
        """Attention in windows of the shifted map, shifted back."""
        height, width = x.shape[1:3]
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = from_windows(self.attn(to_windows(x), self.mask), height, width)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Merges each 2x2 of positions into one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        quarters = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.reduction(self.norm(torch.cat(quarters, dim=-1)))


class Swin(nn.Module):
    """Images ``[batch, 3, 224, 224]`` to logits ``[batch, classes]``."""

    def __init__(
        self, width: int, depths: tuple[int, ...], heads: tuple[int, ...], classes: int = 1000
    ) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 4, 4)
        self.norm0 = nn.LayerNorm(width)
        size = 56
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(PatchMerging(width))
                width, size = 2 * width, size // 2
            for index in range(depth):
                # The last stage is one window: nothing to shift.
                shift = WINDOW // 2 if index % 2 and size > WINDOW else 0
                layers.append(SwinBlock(width, heads[stage], size, shift))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm0(self.patch_embed(image).permute(0, 2, 3, 1))
        return self.classifier(self.norm(self.layers(x)).mean((1, 2)))


def swin_tiny() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """12 blocks, 96 to 768 wide, 224 px: 28 M parameters."""
    return randomize(Swin(96, (2, 2, 6, 2), (3, 6, 12, 24))), (random_input(1, 3, 224, 224),)
