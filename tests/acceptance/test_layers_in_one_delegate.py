"""Layers of everyday networks lower into one delegate, alone, and compute what they did."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, assert_whole, lower
from torch import nn
from torch.nn import functional

MASK = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]], dtype=torch.bool)


def gauge(norm: nn.Module) -> nn.Module:
    """A batch norm with statistics that change something."""
    norm.running_mean = torch.tensor([0.3, -0.2, 1.0, 0.0])
    norm.running_var = torch.tensor([0.5, 2.0, 1.0, 3.0])
    return norm


def grid(x: torch.Tensor) -> torch.Tensor:
    """An image plus the positions of its pixels."""
    lines = (torch.linspace(-1, 1, size) for size in x.shape[-2:])
    return x + torch.stack(torch.meshgrid(*lines, indexing="ij"))


def grouped(x: torch.Tensor) -> torch.Tensor:
    """Four heads of queries over two of keys and values, with a scale of its own."""
    few = x[:, :2] * 0.5
    return functional.scaled_dot_product_attention(x, few, few, scale=0.3, enable_gqa=True)


def after_future(x: torch.Tensor) -> torch.Tensor:
    """Attention weights whose mask is written as a fill."""
    return torch.softmax(x.masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf), -1)


LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "LSTM": (nn.LSTM(6, 5, num_layers=2, batch_first=True), (2, 4, 6)),
    "bidirectional GRU": (nn.GRU(6, 5, bidirectional=True, batch_first=True), (2, 4, 6)),
    "nearest upsampling": (nn.Upsample(scale_factor=2), (1, 3, 5, 4)),
    "bilinear upsampling": (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 5, 4)),
    "a padded average pool": (nn.AvgPool2d(3, 1, 1), (1, 3, 6, 6)),
    "an average pool rounded up": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (1, 3, 7, 6)),
    "a max pool rounded up": (nn.MaxPool2d(3, 2, ceil_mode=True), (1, 3, 8, 7)),
    "a max pool of an image without a batch": (nn.MaxPool2d(3, 2, 1), (3, 8, 7)),
    "an average pool of a line without a batch": (nn.AvgPool1d(3, 2, 1), (3, 8)),
    "a reflected border": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (1, 3, 6, 6)),
    "a circular border": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (1, 3, 6, 6)),
    "a replicated border": (nn.ReplicationPad2d((1, 2, 0, 3)), (1, 3, 6, 6)),
    "a cropping pad": (lambda x: functional.pad(x, (-1, 2, 0, -2)), (1, 3, 6, 6)),
    "every other pixel": (lambda x: x[:, :, ::2, 1::2], (1, 3, 7, 7)),
    "a convolution of volumes": (nn.Conv3d(2, 4, 3, (1, 2, 1), 1, groups=2), (1, 2, 4, 5, 5)),
    "SELU": (nn.SELU(), (2, 6)),
    "CELU": (nn.CELU(0.5), (2, 6)),
    "softshrink": (nn.Softshrink(0.3), (2, 6)),
    "a cosine similarity": (lambda x: functional.cosine_similarity(x, x + 1, -1), (2, 6)),
    "the greatest over two axes": (lambda x: x.amax((1, 3)), (2, 3, 4, 5)),
    "the least over axes apart": (lambda x: x.amin((0, 2), keepdim=True), (2, 3, 4, 5)),
    "the greatest of each row": (lambda x: x.max(-1).values - x.max(), (2, 6)),
    "log softmax": (nn.LogSoftmax(-1), (2, 6)),
    "slopes per channel": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4)),
        (1, 3, 6, 6),
    ),
    "slopes of lines": (nn.PReLU(4), (2, 4, 7)),
    "a leaky ramp": (nn.LeakyReLU(0.2), (2, 6)),
    "a choice of two by a mask": (lambda x: torch.where(MASK, x, 2 - x[:1]), (2, 4, 3)),
    "a choice of numbers by a mask": (lambda x: torch.where(MASK, 0.5, x), (2, 4, 3)),
    "a fill by a mask": (lambda x: x.masked_fill(MASK, -1e9), (2, 4, 3)),
    "a fill of the future": (after_future, (2, 6, 6)),
    "grouped queries": (grouped, (1, 4, 6, 8)),
    "a convolution of lines": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 9)),
    "a pool to a given size": (nn.AdaptiveAvgPool2d((3, 2)), (2, 3, 6, 6)),
    "a convolution with weight norm": (
        nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)),
        (1, 3, 6, 6),
    ),
    "a grid of positions": (grid, (1, 2, 5, 6)),
    "a lone batch norm": (gauge(nn.BatchNorm2d(4)), (2, 4, 5, 5)),
    "a norm behind a layer": (
        nn.Sequential(nn.Linear(3, 4), gauge(nn.BatchNorm1d(4))),
        (5, 3),
    ),
    "a norm before a layer": (
        nn.Sequential(gauge(nn.BatchNorm1d(4)), nn.Linear(4, 3)),
        (5, 4),
    ),
    "repeated rows": (lambda x: x.repeat(2, 3), (3, 4)),
    "rolled images": (lambda x: torch.roll(x, (2, -1), (1, 2)), (1, 6, 6, 4)),
    "the same twice in a row": (lambda x: torch.cat([x, x], 1), (2, 4)),
    "an interpolation": (lambda x: torch.lerp(x, x * x, 0.7), (2, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_becomes_one_delegate_and_nothing_else(name: str) -> None:
    layer, shape = LAYERS[name]
    x = torch.randn(shape)
    lowered = lower(layer, x, numerics="finite")  # NaN aside: semantics.md.
    assert_whole(lowered)
    assert_as_eager(lowered, layer, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layers",
    [
        nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)),
        nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 16, bias=False), nn.Linear(16, 4)),
        nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)),
    ],
)
def test_layers_without_an_activation_between_them_are_one(layers: nn.Sequential) -> None:
    x = torch.randn(5, layers[0].weight.shape[-1])
    lowered = lower(layers, x, numerics="finite")
    nodes = [op.name for op in lowered.program.module.walk() if op.name.startswith("xnnpack.")]
    assert nodes.count("xnnpack.fully_connected") == len(nodes) - 2 == 1  # Delegate and yield.
    assert_as_eager(lowered, layers, x, rtol=1e-5, atol=1e-5)


def test_an_op_that_the_normal_form_names_again_keeps_its_kernel() -> None:
    """`group_norm` has no kernel, `native_group_norm` has; a computed scale leaves it outside."""
    function = Function(lambda x, scale: functional.group_norm(x, 2, scale))
    inputs = (torch.randn(2, 4, 3), torch.randn(4))
    assert_as_eager(lower(function, *inputs), function, *inputs)
