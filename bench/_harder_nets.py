"""Nets that are harder on int8 than those of `_accuracy_nets.py`, trained as those are.

Fine classes (pairs of digits, stripes of sixteen kinds in two colors), one scale for much that
differs (concatenations, long residuals, channels uneven by construction), gates, recurrences,
attention with outliers, a class for each pixel.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from _accuracy_nets import (
    Block,
    Data,
    Excite,
    Mixer,
    Net,
    Residual,
    Vit,
    conv,
    ending,
    images,
    mobilenet,
    spectra,
    waves,
)
from torch import Tensor, nn

# -- data ------------------------------------------------------------------------------------------


def pairs(split: str, count: int, seed: int) -> Data:
    """Two digits side by side, a class for each pair: `[N, 1, 8, 16]`, 100 classes."""
    x, y = images(split, 2 * count, seed)
    return torch.cat((x[:count], x[count:]), -1), 10 * y[:count] + y[count:]


def textures(split: str, count: int, seed: int, noise: float = 1.3) -> Data:
    """Stripes in noise: eight directions, two widths, red or blue ahead; `[N, 3, 16, 16]`."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(32, (count,), generator=random)
    angle = (y % 8 + 0.5 * torch.rand(count, generator=random)) * math.pi / 8
    pitch = 0.7 * (1 + y // 8 % 2) + 0.2 * torch.rand(count, generator=random)
    lag = 0.6 * (2 * (y // 16) - 1)
    at = torch.arange(16.0)
    along = (at[None, :] * angle.cos()[:, None])[:, :, None]
    across = (at[None, :] * angle.sin()[:, None])[:, None, :]
    start = 2 * math.pi * torch.rand(count, generator=random)
    phase = pitch[:, None, None] * (along + across) + start[:, None, None]
    delays = lag[:, None] * torch.arange(3)[None, :]
    x = torch.cos(phase[:, None] + delays[:, :, None, None])
    return x + noise * torch.randn(x.shape, generator=random), y


def faint(split: str, count: int, seed: int) -> Data:
    """The same, fainter."""
    return textures(split, count, seed, 2.3)


def pixels(split: str, count: int, seed: int) -> Data:
    """Of each pixel of a pair the digit that it is ink of, or none: labels `[N, 8, 16]`."""
    x, y = pairs(split, count, seed)
    digits = torch.stack((y // 10, y % 10), 1).repeat_interleave(8, 1)[:, None, :]
    return x, torch.where(x[:, 0] > 0.5, digits + 1, 0)


# -- nets ------------------------------------------------------------------------------------------


def separable(inputs: int, outputs: int, stride: int = 1, act: Any = nn.ReLU) -> list[nn.Module]:
    """A depthwise convolution, and one of single pixels."""
    deep = [*conv(inputs, inputs, 3, stride, inputs), act()]
    return [*deep, *conv(inputs, outputs, 1), act()]


def depthwise() -> nn.Module:
    """A MobileNet of the first kind: six separable convolutions, no range is limited."""
    sizes = pairwise((24, 32, 48, 48, 64, 64, 64))
    strides = (1, 2, 1, 2, 1, 1)
    body = [m for (a, b), s in zip(sizes, strides, strict=True) for m in separable(a, b, s)]
    return nn.Sequential(*conv(3, 24, 3, 2), nn.ReLU(), *body, *ending(64, 32))


def make_uneven(model: nn.Module) -> None:
    """The same function, with channels up to 16 times larger or smaller after every norm.

    In floats nothing changes; nets that are trained without batch norm, or pruned, look like this.
    """
    random = torch.Generator().manual_seed(0)
    chains = [list(m) for m in model.modules() if isinstance(m, nn.Sequential)]
    kinds = nn.BatchNorm2d, nn.ReLU, nn.Conv2d
    with torch.no_grad():
        for three in (some for one in chains for some in zip(one, one[1:], one[2:], strict=False)):
            if all(map(isinstance, three, kinds)):
                norm, _, reader = three
                by = 2 ** (8 * torch.rand(norm.num_features, generator=random) - 4)
                norm.weight.mul_(by)
                norm.bias.mul_(by)
                axis = 0 if reader.groups > 1 else 1
                reader.weight.div_(by.reshape([-1 if at == axis else 1 for at in range(4)]))


def give_outliers(model: nn.Module) -> None:
    """The same function, with three channels after each norm 30 times larger, as in big models."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for block in model.modules():
            if isinstance(block, Block):
                for norm, reader in ((block.norm1, block.attn.qkv), (block.norm2, block.fc1)):
                    at = torch.randperm(len(norm.weight), generator=random)[:3]
                    norm.weight[at] *= 30
                    norm.bias[at] *= 30
                    reader.weight[:, at] /= 30


class Dense(nn.Module):
    """Each layer reads all results before it, which share one scale (Huang et al. 2017)."""

    def __init__(self, growth: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.first = nn.Sequential(*conv(3, 24, 3, 2), nn.ReLU())
        width = [24 + growth * at for at in range(depth + 1)]
        self.layers = nn.ModuleList(
            nn.Sequential(*conv(w, growth), nn.ReLU()) for w in width[:-1]
        )  # fmt: skip
        self.last = nn.Sequential(*ending(width[-1], 32))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return self.last(x)


class Shuffle(nn.Module):
    """Groups of channels, dealt out anew between two layers (Zhang et al. 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into = nn.Sequential(*conv(width, width, 1, 1, 4), nn.ReLU())
        self.out = nn.Sequential(*conv(width, width, 3, 1, width), *conv(width, width, 1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.into(x)
        y = y.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2)
        return F.relu(x + self.out(y))


def shuffled() -> nn.Module:
    """Three units of a ShuffleNet."""
    return nn.Sequential(*conv(3, 48, 3, 2), nn.ReLU(), *(Shuffle(48) for _ in range(3)),
                         *ending(48, 32))  # fmt: skip


def efficient() -> nn.Module:
    """Depthwise convolutions, SiLU, squeeze and excitation (Tan and Le 2019)."""
    body = [*separable(24, 24, 1, nn.SiLU), Excite(24), *separable(24, 48, 2, nn.SiLU), Excite(48)]
    return nn.Sequential(*conv(3, 24, 3, 2), nn.SiLU(), *body,
                         Residual(*separable(48, 48, 1, nn.SiLU)), *ending(48, 32))  # fmt: skip


class Recurrent(nn.Module):
    """A gated recurrence over the columns of an image (Cho et al. 2014), written out."""

    def __init__(self, size: int = 8, steps: int = 8, width: int = 48) -> None:
        super().__init__()
        self.steps, self.width = steps, width
        self.into, self.own = nn.Linear(size, 3 * width), nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        given = self.into(x[:, 0].transpose(1, 2))
        h = given.new_zeros(len(x), self.width)
        for t in range(self.steps):
            zero, reset, new = given[:, t].chunk(3, -1)
            own_zero, own_reset, own_new = self.own(h).chunk(3, -1)
            gate = torch.sigmoid(zero + own_zero)
            new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
            h = new + gate * (h - new)
        return self.head(h)


class Conformer(nn.Module):
    """Attention, and a gated depthwise convolution over time (Gulati et al. 2020)."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.into, self.block = nn.Linear(32, width), Block(width, 4)
        self.norm, self.gates = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.deep = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.out, self.last = nn.Conv1d(width, width, 1), nn.LayerNorm(width)
        self.head = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.into(x.squeeze(1)))
        y, gate = self.gates(self.norm(x).transpose(1, 2)).chunk(2, 1)
        y = self.out(F.silu(self.deep(y * torch.sigmoid(gate))))
        return self.head(self.last(x + y.transpose(1, 2)).mean(1))


class Gate(nn.Module):
    """A dilated unit of a WaveNet (van den Oord et al. 2016): tanh times sigmoid."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.into = nn.Conv2d(width, 2 * width, (1, 3), 1, (0, dilation), (1, dilation))
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.into(x).chunk(2, 1)
        return x + self.out(torch.tanh(y) * torch.sigmoid(gate))


def wavenet() -> nn.Module:
    """Four of them; what is summed grows."""
    units = [Gate(32, 2**at) for at in range(4)]
    return nn.Sequential(nn.Conv2d(1, 32, (1, 9), (1, 4), (0, 4)), *units, nn.ReLU(),
                         *ending(32, 12))  # fmt: skip


class Pixels(nn.Module):
    """A U-Net (Ronneberger et al. 2015): down, up, and skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*conv(1, 16), nn.ReLU())
        self.down = nn.Sequential(*conv(16, 32, 3, 2), nn.ReLU(), *conv(32, 48, 3, 2), nn.ReLU())
        self.middle = nn.Sequential(*conv(48, 48), nn.ReLU())
        self.last = nn.Sequential(*conv(64, 32), nn.ReLU(), nn.Conv2d(32, 11, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = F.interpolate(self.middle(self.down(x)), scale_factor=4.0, mode="nearest")
        return self.last(torch.cat((x, y), 1)).permute(0, 2, 3, 1)


HARDER: dict[str, Net] = {
    "depthwise": Net(depthwise, textures, 400, 96, hard="six depthwise layers, ranges not limited"),
    "uneven": Net(
        lambda: mobilenet(nn.ReLU),
        images,
        300,
        after=make_uneven,
        hard="channels up to 16 times larger or smaller ahead of depthwise layers",
    ),
    "outliers": Net(
        Vit,
        images,
        500,
        128,
        2e-3,
        after=give_outliers,
        hard="three channels behind each norm 30 times as large",
    ),
    "fine": Net(
        lambda: Vit(3, 64, 32),
        textures,
        300,
        64,
        2e-3,
        hard="attention over colors, 32 fine classes",
    ),
    "pair-mixer": Net(lambda: Mixer(32, 100), pairs, 400, hard="100 classes"),
    "dense": Net(Dense, faint, 300, 96, hard="one scale for results of five layers"),
    "shuffle": Net(shuffled, faint, 300, 96, hard="groups of channels dealt out anew"),
    "efficient": Net(efficient, faint, 300, 96, hard="SiLU, squeeze and excitation"),
    "recurrent": Net(Recurrent, images, 600, hard="a gated recurrence of eight steps"),
    "conformer": Net(
        Conformer, spectra, 300, hard="attention, gates and depthwise layers over time"
    ),
    "wavenet": Net(wavenet, waves, 200, 96, hard="tanh times sigmoid, sums that grow"),
    "pixels": Net(Pixels, pixels, 200, 96, hard="a class for each pixel (U-Net)"),
}
"""By name."""
