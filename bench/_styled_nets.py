"""Layers whose filter a style makes at run time: StyleGAN2, and GFPGAN in the small (spandrel)."""

from __future__ import annotations

import importlib
import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepwell.model_zoo.catalogue.vision import imported

Net = tuple[nn.Module, tuple[Tensor, ...]]


class ModulatedConv2d(nn.Module):
    """StyleGAN2's convolution, as its authors write it: a filter for each image."""

    def __init__(self, channels: int, made: int, style: int, upsample: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, made, channels, 3, 3) / (channels * 9) ** 0.5)
        self.modulation = nn.Linear(style, channels)
        nn.init.ones_(self.modulation.bias)
        self.upsample = upsample

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        b, c = x.shape[:2]
        weight = self.weight * self.modulation(style).view(b, 1, c, 1, 1)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
        weight = weight.view(-1, c, 3, 3)
        if self.upsample:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = x.reshape(1, b * c, *x.shape[2:])
        return F.conv2d(x, weight, padding=1, groups=b).view(b, -1, *x.shape[2:])


def stylegan_layer() -> Net:
    """128 channels to 128, at 16 × 16."""
    torch.manual_seed(0)
    layer = ModulatedConv2d(128, 128, 64).eval()
    return layer, (torch.randn(1, 128, 16, 16), torch.randn(1, 64))


def stylegan_layer_of_four() -> Net:
    """The same for a batch of four styles."""
    torch.manual_seed(0)
    layer = ModulatedConv2d(128, 128, 64).eval()
    return layer, (torch.randn(4, 128, 16, 16), torch.randn(4, 64))


class Decoder(nn.Module):
    """StyleGAN2's synthesis, 4 × 4 to 64 × 64: two layers, noise and an image of each scale."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, 64, 4, 4))
        widths = [64, 64, 64, 32, 16]
        self.layers, self.images = nn.ModuleList(), nn.ModuleList()
        for scale, (held, made) in enumerate(itertools.pairwise(widths)):
            self.layers += [ModulatedConv2d(held, made, 64, True), ModulatedConv2d(made, made, 64)]
            self.images.append(nn.Conv2d(made, 3, 1))
            side = 8 << scale
            self.register_buffer(f"noise{scale}", torch.randn(2, 1, 1, side, side) / 4)

    def forward(self, style: Tensor) -> Tensor:
        x, image = self.start, None
        for scale, to_image in enumerate(self.images):
            for at in range(2):
                x = self.layers[2 * scale + at](x, style) + getattr(self, f"noise{scale}")[at]
                x = F.leaky_relu(x, 0.2) * 2**0.5
            made = to_image(x)
            if image is not None:
                made = made + F.interpolate(image, scale_factor=2.0, mode="bilinear")
            image = made
        return image


def stylegan_decoder() -> Net:
    """Eight such layers."""
    torch.manual_seed(0)
    return Decoder().eval(), (torch.randn(1, 64),)


class WithItsNoise(nn.Module):
    """GFPGAN draws its noise anew each time, unless told."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, randomize_noise=False)[0]


def gfpgan_64() -> Net:
    """The package spandrel's GFPGAN (clean) at 64 × 64, a quarter of its width."""
    imported("spandrel")
    arch = importlib.import_module("spandrel.architectures.GFPGAN.__arch.gfpganv1_clean_arch")
    torch.manual_seed(0)
    net = arch.GFPGANv1Clean(out_size=64, num_style_feat=64, num_mlp=2, narrow=0.25)
    return WithItsNoise(net).eval(), (torch.randn(1, 3, 64, 64),)


NETS = ("stylegan_layer", "stylegan_layer_of_four", "stylegan_decoder", "gfpgan_64")
