"""DeiT-Tiny, a vision transformer (Dosovitskiy et al. 2021, Touvron et al. 2021)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize


class Attention(nn.Module):
    """Multi-head self-attention over tokens ``[batch, tokens, width]``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.drop(self.proj(y.transpose(1, 2).reshape(batch, tokens, width)))


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(0.0)
        self.fc2 = nn.Linear(hidden, width)
        self.drop2 = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]`` read off the class token."""

    def __init__(
        self,
        width: int,
        depth: int,
        heads: int,
        size: int = 224,
        patch: int = 16,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        self.pos_drop = nn.Dropout(0.0)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head_drop = nn.Dropout(0.0)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.blocks(self.pos_drop(x + self.pos_embed))
        return self.head(self.head_drop(self.norm(x)[:, 0]))


def deit_tiny() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """12 blocks, 192 wide, 3 heads, 224 px, patches of 16: 5.7 M parameters."""
    return randomize(VisionTransformer(192, 12, 3)), (random_input(1, 3, 224, 224),)


def deit_small_depth2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two blocks, 64 wide, 2 heads, 32 px, patches of 8: the same structure for quick tests."""
    model = VisionTransformer(64, 2, 2, size=32, patch=8, classes=10)
    return randomize(model), (random_input(1, 3, 32, 32),)
