"""CLIP (Radford et al. 2021): the similarity of images and texts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, PATCH, SIZE, VOCABULARY, CONTEXT, SHARED = 32, 4, 8, 32, 100, 12, 24


class QuickGELU(nn.Module):
    """``x * sigmoid(1.702 x)``."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    """A pre-norm block around ``nn.MultiheadAttention``, tokens first."""

    def __init__(self, mask: Tensor | None) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), QuickGELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=self.mask)[0]
        return x + self.mlp(self.ln_2(x))


class Image(nn.Module):
    """``[batch, 3, SIZE, SIZE]`` to ``[batch, SHARED]``, from a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(WIDTH))
        self.positions = nn.Parameter(torch.empty((SIZE // PATCH) ** 2 + 1, WIDTH))
        self.ln_pre, self.ln_post = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(Block(None), Block(None))
        self.proj = nn.Parameter(torch.empty(WIDTH, SHARED))

    def forward(self, image: Tensor) -> Tensor:
        x = self.conv1(image)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        first = self.class_embedding.to(x.dtype) + torch.zeros(x.shape[0], 1, x.shape[-1])
        x = self.ln_pre(torch.cat([first, x], dim=1) + self.positions)
        x = self.blocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        return self.ln_post(x[:, 0, :]) @ self.proj


class Text(nn.Module):
    """``[batch, CONTEXT]`` tokens to ``[batch, SHARED]``, from the position of the
    largest token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.empty(CONTEXT, WIDTH))
        mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu_(1)
        self.blocks = nn.Sequential(Block(mask), Block(mask))
        self.ln_final = nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.empty(WIDTH, SHARED))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embedding(tokens) + self.positions
        x = self.ln_final(self.blocks(x.permute(1, 0, 2)).permute(1, 0, 2))
        return x[torch.arange(x.shape[0]), tokens.argmax(dim=-1)] @ self.proj


class CLIP(nn.Module):
    """Logits ``[images, texts]``."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = Image(), Text()
        self.logit_scale = nn.Parameter(torch.ones([]))

    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:
        images, texts = self.image(image), self.text(tokens)
        images = images / images.norm(dim=1, keepdim=True)
        texts = texts / texts.norm(dim=1, keepdim=True)
        return self.logit_scale.exp() * images @ texts.t()


def clip() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """One image, two texts."""
    tokens = torch.arange(2 * CONTEXT).view(2, CONTEXT) * 7 % VOCABULARY
    return randomize(CLIP()), (random_input(1, 3, SIZE, SIZE), tokens)


def clip_image() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Only the image tower, normalized to length one."""

    class Scaled(Image):
        """Features of length one."""

        def forward(self, image: Tensor) -> Tensor:
            return F.normalize(super().forward(image), dim=-1)

    return randomize(Scaled()), (random_input(1, 3, SIZE, SIZE),)
