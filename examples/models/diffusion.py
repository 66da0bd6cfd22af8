"""Latent diffusion (Rombach et al. 2022): the UNet conditioned on a text, and the autoencoder."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

CHANNELS, TIME, TEXT, HEADS, GROUPS = 32, 64, 24, 4, 8


def timesteps(steps: Tensor) -> Tensor:
    """Cosines and sines ``[batch, CHANNELS]`` of times."""
    half = CHANNELS // 2
    scales = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
    angles = steps[:, None].float() * scales[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class ResBlock(nn.Module):
    """Two convolutions after norms; the time is added between them."""

    def __init__(self, inputs: int, outputs: int, timed: bool = True) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, inputs, eps=1e-6)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(TIME, outputs) if timed else None
        self.norm2 = nn.GroupNorm(GROUPS, outputs, eps=1e-6)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Multi-head attention over tokens; keys and values from a text, if there is one."""

    def __init__(self, width: int, source: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(source, width, bias=False)
        self.to_v = nn.Linear(source, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        source = x if source is None else source

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        q, k, v = split(self.to_q(x)), split(self.to_k(source)), split(self.to_v(source))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).flatten(2))


class SpatialTransformer(nn.Module):
    """Pixels as tokens: attention to each other, attention to the text, a gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1, self.attn2 = Attention(width, width), Attention(width, TEXT)
        self.gated, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        y = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, height * columns, width)
        y = y + self.attn1(self.norm1(y))
        y = y + self.attn2(self.norm2(y), text)
        value, gate = self.gated(self.norm3(y)).chunk(2, dim=-1)
        y = y + self.out(value * F.gelu(gate))
        y = y.reshape(batch, height, columns, width).permute(0, 3, 1, 2).contiguous()
        return x + self.proj_out(y)


class UNet(nn.Module):
    """Two resolutions, one block down and up, and a middle block; predicts the noise in ``[batch,
    4, height, width]``.
    """

    def __init__(self) -> None:
        super().__init__()
        wide = 2 * CHANNELS
        self.time = nn.Sequential(nn.Linear(CHANNELS, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.conv_in = nn.Conv2d(4, CHANNELS, 3, padding=1)
        self.down1, self.text1 = ResBlock(CHANNELS, CHANNELS), SpatialTransformer(CHANNELS)
        self.shrink = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.down2, self.text2 = ResBlock(CHANNELS, wide), SpatialTransformer(wide)
        self.middle1, self.middle_text = ResBlock(wide, wide), SpatialTransformer(wide)
        self.middle2 = ResBlock(wide, wide)
        self.up2, self.text3 = ResBlock(wide + wide, wide), SpatialTransformer(wide)
        self.grow = nn.Conv2d(wide, wide, 3, padding=1)
        self.up1, self.text4 = ResBlock(wide + CHANNELS, CHANNELS), SpatialTransformer(CHANNELS)
        self.norm_out = nn.GroupNorm(GROUPS, CHANNELS)
        self.conv_out = nn.Conv2d(CHANNELS, 4, 3, padding=1)

    def forward(self, sample: Tensor, steps: Tensor, text: Tensor) -> Tensor:
        time = self.time(timesteps(steps).to(sample.dtype))
        x = self.conv_in(sample)
        near = x = self.text1(self.down1(x, time), text)
        far = x = self.text2(self.down2(self.shrink(x), time), text)
        x = self.middle2(self.middle_text(self.middle1(x, time), text), time)
        x = self.text3(self.up2(torch.cat([x, far], dim=1), time), text)
        x = self.grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.text4(self.up1(torch.cat([x, near], dim=1), time), text)
        return self.conv_out(F.silu(self.norm_out(x)))


class PixelAttention(nn.Module):
    """One head over all pixels, with pointwise convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, eps=1e-6)
        self.q, self.k = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.v, self.proj_out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        batch, width, height, columns = q.shape
        q = q.reshape(batch, width, height * columns).permute(0, 2, 1)
        k = k.reshape(batch, width, height * columns)
        weights = F.softmax(torch.bmm(q, k) * width**-0.5, dim=2).permute(0, 2, 1)
        y = torch.bmm(v.reshape(batch, width, height * columns), weights)
        return x + self.proj_out(y.reshape(batch, width, height, columns))


class VAE(nn.Module):
    """Images to the mean of their latents, and back; padded on two sides before each halving."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(3, 16, 3, padding=1)
        self.down = nn.ModuleList([ResBlock(16, 16, False), ResBlock(16, 32, False)])
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=0)
        self.attention1, self.attention2 = PixelAttention(32), PixelAttention(32)
        self.norm1, self.moments = nn.GroupNorm(GROUPS, 32), nn.Conv2d(32, 8, 3, padding=1)
        self.quant, self.post_quant = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)
        self.conv_back = nn.Conv2d(4, 32, 3, padding=1)
        self.up = nn.ModuleList([ResBlock(32, 32, False), ResBlock(32, 16, False)])
        self.grow = nn.Conv2d(32, 32, 3, padding=1)
        self.norm2, self.conv_out = nn.GroupNorm(GROUPS, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.down[0](self.conv_in(image))
        x = self.down[1](self.shrink(F.pad(x, (0, 1, 0, 1), mode="constant", value=0)))
        x = self.moments(F.silu(self.norm1(self.attention1(x))))
        mean, _ = torch.chunk(self.quant(x), 2, dim=1)
        x = self.attention2(self.up[0](self.conv_back(self.post_quant(mean))))
        x = self.grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.norm2(self.up[1](x))))


def diffusion_unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Latents of 8 x 8, one time, six tokens of text."""
    inputs = random_input(1, 4, 8, 8), torch.tensor([37.0]), random_input(1, 6, TEXT, seed=2)
    return randomize(UNet()), inputs


def diffusion_unet_in_halves() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The same in half precision."""
    module, (sample, steps, text) = diffusion_unet()
    return module.half(), (sample.half(), steps, text.half())


def vae() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An image of 16 x 16."""
    return randomize(VAE()), (random_input(1, 3, 16, 16),)
