"""The four models of MLPerf Tiny, from MLCommons' published definitions, with random weights.

Source: github.com/mlcommons/tiny, `benchmark/training/*/keras_model.py` and `vww_model.py`. Keras'
`padding="same"` pads the end of an axis by one cell more than its start if the sum is odd.
Weights are random from a fixed seed: sizes, instructions and cycles do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

EPSILON = 1e-3
"""Keras' epsilon of a batch norm."""


def same(size: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """Return the cells before and after an axis, and the number of windows, as TensorFlow does."""
    count = math.ceil(size / stride)
    total = max((count - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2, count


class Convolution(nn.Sequential):
    """A convolution with `padding="same"`; by default a batch norm and a ReLU follow."""

    def __init__(
        self,
        size: tuple[int, int],
        inputs: int,
        outputs: int,
        kernel: tuple[int, int],
        stride: int = 1,
        *,
        depthwise: bool = False,
        norm: bool = True,
        relu: bool = True,
    ) -> None:
        (top, bottom, height), (left, right, width) = (
            same(length, window, stride) for length, window in zip(size, kernel, strict=True)
        )
        is_even = (top, left) == (bottom, right)
        groups = inputs if depthwise else 1
        padding = (top, left) if is_even else 0
        layers: list[nn.Module] = [] if is_even else [nn.ZeroPad2d((left, right, top, bottom))]
        layers.append(nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups))
        layers += [nn.BatchNorm2d(outputs, EPSILON)] if norm else []
        super().__init__(*layers, *([nn.ReLU()] if relu else []))
        self.size = (height, width)


def separable(size: tuple[int, int], inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a depthwise and a pointwise convolution."""
    depth = Convolution(size, inputs, inputs, (3, 3), stride, depthwise=True)
    return nn.Sequential(depth, Convolution(depth.size, inputs, outputs, (1, 1)))


def keyword_spotting() -> nn.Module:
    """Return the DS-CNN (`kws01`): 49 x 10 features of a second of sound to 12 words."""
    stem = Convolution((49, 10), 1, 64, (10, 4), 2)
    return nn.Sequential(
        stem,
        nn.Dropout(0.2),
        *(separable(stem.size, 64, 64) for _ in range(4)),
        nn.Dropout(0.4),
        nn.AvgPool2d((24, 5)),  # Of 25 x 5: the last row is left out, as in the reference.
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.Softmax(-1),
    )


def visual_wake_words() -> nn.Module:
    """Return MobileNetV1-0.25 (`vww01`): an image of 96 x 96 x 3 to person or none."""
    stem = Convolution((96, 96), 3, 8, (3, 3), 2)
    blocks: list[nn.Module] = []
    size, inputs = stem.size, 8
    widths = (16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
    for at, outputs in enumerate(widths):
        stride = 2 if at in (1, 3, 5, 11) else 1
        blocks.append(separable(size, inputs, outputs, stride))
        size, inputs = (math.ceil(size[0] / stride), math.ceil(size[1] / stride)), outputs
    end = (nn.AvgPool2d(size), nn.Flatten(), nn.Linear(inputs, 2), nn.Softmax(-1))
    return nn.Sequential(stem, *blocks, *end)


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, size: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        first = Convolution((size, size), inputs, outputs, (3, 3), stride)
        second = Convolution(first.size, outputs, outputs, (3, 3), relu=False)
        self.body = nn.Sequential(first, second)
        shortcut = Convolution(
            (size, size), inputs, outputs, (1, 1), stride, norm=False, relu=False
        )
        self.shortcut = nn.Identity() if stride == 1 else shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut to the body, as the reference does."""
        return torch.relu(self.shortcut(x) + self.body(x))


def image_classification() -> nn.Module:
    """Return ResNet8 (`ic01`, 16 filters): an image of 32 x 32 x 3 to 10 classes."""
    return nn.Sequential(
        Convolution((32, 32), 3, 16, (3, 3)),
        Residual(32, 16, 16, 1),
        Residual(32, 16, 32, 2),
        Residual(16, 32, 64, 2),
        nn.AvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, 10),
        nn.Softmax(-1),
    )


def anomaly_detection() -> nn.Module:
    """Return the autoencoder (`ad01`): five frames of 128 mel bands to themselves."""
    widths = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers = [
        layer
        for inputs, outputs in pairwise(widths)
        for layer in (nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs, EPSILON), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(128, 640))


@dataclass(frozen=True)
class Benchmark:
    """A model of MLPerf Tiny.

    Attributes:
        version: the harness' name of the model (`TH_MODEL_VERSION`).
        make: creates the float model.
        shape: the input's shape.
        span: the least and the largest number that the harness sends as an input.
        sent: what one byte of the harness means: scale, zero point and C type. Without one, the
            harness sends float32.
        parameters: weights and biases after batch norms are folded into layers, as in MLCommons'
            quantized `.tflite`, counting a bias for each layer.
    """

    version: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    span: tuple[float, float]
    sent: tuple[float, int, str] | None
    parameters: int


BENCHMARKS = {
    "kws": Benchmark(
        "kws01",
        keyword_spotting,
        (1, 1, 49, 10),
        (-123.37, 25.73),
        (0.5847029089927673, 83, "int8_t"),
        22_604,
    ),
    "vww": Benchmark(
        "vww01", visual_wake_words, (1, 3, 96, 96), (0.0, 1.0), (1 / 255, 0, "uint8_t"), 210_850
    ),
    "ic": Benchmark(
        "ic01", image_classification, (1, 3, 32, 32), (0.0, 255.0), (1.0, 0, "uint8_t"), 77_706
    ),
    "ad": Benchmark("ad01", anomaly_detection, (1, 640), (-84.85, 14.86), None, 265_864),
}
"""The benchmarks by short name; scales and zero points are those of MLCommons' `.tflite` files."""


def samples(name: str, count: int = 8) -> list[Tensor]:
    """Return random inputs over the range that the harness sends; images are channels last."""
    benchmark = BENCHMARKS[name]
    random = torch.Generator().manual_seed(1)
    low, high = benchmark.span
    drawn = [
        low + (high - low) * torch.rand(benchmark.shape, generator=random) for _ in range(count)
    ]
    drawn[0].view(-1)[:2] = torch.tensor([low, high])  # The range is observed from end to end.
    if len(benchmark.shape) < 4:
        return drawn
    return [value.contiguous(memory_format=torch.channels_last) for value in drawn]


def model(name: str) -> nn.Module:
    """Return a float model for evaluation, whose batch norms have seen `samples`."""
    torch.manual_seed(0)
    made = BENCHMARKS[name].make()
    for layer in made.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.momentum = None  # An average over all batches.
    with torch.no_grad():
        made.train()(torch.cat(samples(name)))
    made.eval()
    if len(BENCHMARKS[name].shape) == 4:
        made = made.to(memory_format=torch.channels_last)
    return made


def quantized(name: str) -> torch.export.ExportedProgram:
    """Return the int8 program, quantized by stepwell on `samples`."""
    import stepwell

    data = samples(name)
    module = stepwell.quantize(model(name), "int8-cortex-m", data)
    return torch.export.export(module, (data[1],))
