"""MLP-Mixer S/32 (Tolstikhin et al. 2021)."""

from torch import Tensor, nn

from random_weights import random_input, randomize


def mlp(width: int, hidden: int) -> nn.Sequential:
    """Two linear layers with GELU between them."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class MixerBlock(nn.Module):
    """An MLP across tokens, then one across channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.mix_tokens = mlp(tokens, width // 2)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mix_channels = mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mix_channels(self.norm2(x))


class Mixer(nn.Module):
    """Images ``[batch, 3, size, size]`` to logits ``[batch, classes]``."""

    def __init__(self, width: int, depth: int, size: int, patch: int, classes: int = 1000) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, patch)
        tokens = (size // patch) ** 2
        self.blocks = nn.Sequential(*(MixerBlock(tokens, width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.classifier = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        return self.classifier(self.norm(self.blocks(x)).mean(1))


def mixer_s32() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """8 blocks, 512 wide, 224 px, patches of 32: 19 M parameters."""
    return randomize(Mixer(512, 8, 224, 32)), (random_input(1, 3, 224, 224),)
