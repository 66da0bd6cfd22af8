"""Transformers and a detector with dynamic sizes: delegates, operators outside, errors.

MPNet and Parakeet take a padding mask, LFM2 takes a prompt of any length, and a small YOLO takes
rectangular images (anchors and grids from sizes, a distribution per side, nearest upsampling).
Weights are random. Results are compared with eager PyTorch at several sizes.

    python tools/dynamic_models.py [mpnet lfm2 parakeet parakeet_static yolo]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import stepwell

Case = tuple[nn.Module, Callable[[int], tuple[Tensor, ...]], Any, tuple[int, ...]]
"""A model, its inputs for a size, its dynamic shapes, and the sizes; the second is exported."""


class Last(nn.Module):
    """A model of transformers that returns one tensor."""

    def __init__(self, model: nn.Module, *names: str, result: str = "last_hidden_state") -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return getattr(self.model(**named), self.result)


def masked(size: int, dtype: torch.dtype) -> Tensor:
    """A padding mask whose last third is padding."""
    return (torch.arange(size) < size - size // 3).to(dtype)[None]


def mpnet() -> Case:
    """Relative positions in buckets, and a padding mask."""
    from transformers import MPNetConfig, MPNetModel

    config = MPNetConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=70,
    )  # fmt: skip
    model = Last(MPNetModel(config, add_pooling_layer=False), "input_ids", "attention_mask")
    length = {1: Dim("n", min=4, max=64)}
    inputs = lambda n: (torch.randint(2, 50, (1, n)), masked(n, torch.long))  # noqa: E731
    return model, inputs, ((length, length),), (5, 16, 64)


def lfm2() -> Case:
    """Gated short convolutions and attention."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
        layer_types=["conv", "full_attention", "conv"], use_cache=False,
    )  # fmt: skip
    model = Last(Lfm2ForCausalLM(config), "input_ids", result="logits")
    inputs = lambda n: (torch.randint(0, 50, (1, n)),)  # noqa: E731
    return model, inputs, (({1: Dim("n", min=4, max=64)},),), (5, 16, 64)


def parakeet() -> Case:
    """Strided convolutions and relative positions, with a padding mask."""
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    config = ParakeetEncoderConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        num_mel_bins=16, subsampling_conv_channels=8,
    )  # fmt: skip
    model = Last(ParakeetEncoder(config), "input_features", "attention_mask")
    length = {1: 8 * Dim("n", min=2, max=32)}
    inputs = lambda n: (torch.randn(1, n, 16), masked(n, torch.bool))  # noqa: E731
    return model, inputs, ((length, length),), (32, 64, 104, 256)


def parakeet_static() -> Case:
    """The same with a static length."""
    model, inputs, _, _ = parakeet()
    return model, inputs, None, (64, 64)


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Module:
    """A convolution with a norm and an activation."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


class Yolo(nn.Module):
    """Two scales of a detector as YOLO has them, with its head."""

    def __init__(self, classes: int = 5, bins: int = 8) -> None:
        super().__init__()
        self.classes, self.bins = classes, bins
        self.first = nn.Sequential(conv(3, 8, 3, 2), conv(8, 16, 3, 2), conv(16, 32, 3, 2))
        self.deep, self.pools = conv(32, 32, 3, 2), conv(128, 32, 1)
        self.up, self.join, self.down = (
            nn.Upsample(scale_factor=2),
            conv(64, 32, 1),
            conv(32, 32, 3, 2),
        )
        self.out = nn.ModuleList(
            nn.Sequential(conv(32, 16), nn.Conv2d(16, 4 * bins + classes, 1)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        pooled = [self.deep(fine)]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = self.pools(torch.cat(pooled, 1))
        fine = self.join(torch.cat([self.up(coarse), fine], 1))
        maps, anchors, strides = [], [], []
        for image, layer, stride in zip((fine, self.down(fine)), self.out, (8, 16), strict=True):
            height, width = image.shape[2:]
            maps.append(layer(image).view(1, 4 * self.bins + self.classes, -1))
            places = (torch.arange(n, dtype=torch.float32) + 0.5 for n in (height, width))
            down, across = torch.meshgrid(*places, indexing="ij")
            anchors.append(torch.stack((across, down), -1).view(-1, 2))
            strides.append(torch.full((height * width, 1), float(stride)))
        box, scores = torch.cat(maps, 2).split((4 * self.bins, self.classes), 1)
        shares = box.view(1, 4, self.bins, box.shape[2]).transpose(2, 1).softmax(1)
        bins = torch.arange(self.bins, dtype=torch.float32).view(1, self.bins, 1, 1)
        start, end = (shares * bins).sum(1).chunk(2, 1)
        low, high = torch.cat(anchors).t()[None] - start, torch.cat(anchors).t()[None] + end
        box = torch.cat([(low + high) / 2, high - low], 1) * torch.cat(strides).t()
        return torch.cat([box, scores.sigmoid()], 1)


def yolo() -> Case:
    """Rectangular images."""
    sides = {2: 16 * Dim("h", min=2, max=8), 3: 16 * Dim("w", min=2, max=8)}
    inputs = lambda n: (torch.randn(1, 3, 16 * n, 16 * (n + 1)),)  # noqa: E731
    return Yolo(), inputs, (sides,), (2, 4, 7)


CASES = {made.__name__: made for made in (mpnet, lfm2, parakeet, parakeet_static, yolo)}


@torch.no_grad()
def main() -> None:
    """Lower and run the models, and print a row for each."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print("| model | delegates | outside | error |\n|---|---|---|---|")
    for name in sys.argv[1:] or CASES:
        torch.manual_seed(0)
        model, inputs, dynamic, sizes = CASES[name]()
        program = torch.export.export(model.eval(), inputs(sizes[1]), dynamic_shapes=dynamic)
        lowered = stepwell.lower(program, "xnnpack", numerics="finite")
        pte, worst = lowered.to_pte(), 0.0
        for size in sizes:
            given = inputs(size)
            (found,), wanted = stepwell.run_pte(pte, given), model(*given)
            worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max()))
        report = lowered.report
        outside = sum(report.outside.values())
        print(f"| {name} | {report.delegates} | {outside} | {worst:.1e} |", flush=True)


if __name__ == "__main__":
    main()
