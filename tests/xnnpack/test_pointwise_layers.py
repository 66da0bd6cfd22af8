"""Linear layers on one axis of an image: computed in place, with the fewest layout ops, soundly."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from eager import assert_as_eager, assert_whole, lower
from test_quantized import kinds, nodes
from torch import Tensor, nn
from torch.nn import functional

import stepwell
from quantized import quantize
from stepwell.lowering import Lowered
from stepwell.validation.check import check


class Image(nn.Module):
    """A function of the layers below and an image."""

    def __init__(self, write: Callable[..., Tensor], channels: int = 4) -> None:
        super().__init__()
        self.write = write
        self.first = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.up, self.down = nn.Linear(channels, 6), nn.Linear(6, channels)
        self.square, self.square2 = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.last = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.wide = nn.Linear(2, 4)

    def forward(self, *images: Tensor) -> Any:
        return self.write(self, *images)


def to_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def to_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def lowered(write: Callable[..., Any], *images: Tensor, **options: Any) -> tuple[Lowered, Image]:
    """The lowered function; on the runtime it computes what eager PyTorch does."""
    module = Image(write, images[0].shape[1])
    made = lower(module, *images, **options)
    assert_as_eager(made, module, *images, rtol=1e-4, atol=1e-5)
    return made, module


def count(made: Lowered, *names: str) -> int:
    return sum(op.name.removeprefix("xnnpack.") in names for op in nodes(made))


def chain(layers: int) -> Callable[..., Tensor]:
    """Layers and activations in turn, each between a permute and its inverse."""

    def write(m: Image, x: Tensor) -> Tensor:
        x = m.first(x)
        for at in range(layers):
            x = to_first(functional.gelu((m.square, m.square2)[at % 2](to_last(x))))
        return m.last(x)

    return write


def tokens(m: Image, x: Tensor) -> Tensor:
    """Rows of `[N·H·W, C]` between reshapes."""
    y = to_last(m.first(x))
    y = m.down(functional.relu(m.up(y.reshape(-1, y.shape[-1])))).reshape(to_last(x).shape)
    return m.last(to_first(y))


SQUARE, OBLONG = torch.randn(1, 4, 4, 4), torch.randn(2, 4, 5, 6)
LAYERS: dict[str, tuple[Callable[..., Any], int]] = {
    "one layer": (lambda m, x: to_first(m.square(to_last(x))), 2),
    "a layer between convolutions": (
        lambda m, x: m.last(to_first(m.square(to_last(m.first(x))))), 2,
    ),
    "an activation between two layers": (
        lambda m, x: m.last(to_first(m.down(functional.gelu(m.up(to_last(m.first(x))))))), 2,
    ),
    "rows between reshapes": (tokens, 2),
    "a bias added behind": (
        lambda m, x: m.last(to_first(to_last(m.first(x)) @ m.square.weight.T + m.square.bias)), 2,
    ),
    "a residual": (lambda m, x: m.last(to_first(m.square(to_last(m.first(x)))) + m.first(x)), 2),
    "a chain of one": (chain(1), 2),
    "a chain of twelve": (chain(12), 2),
}  # fmt: skip


AMBIGUOUS: dict[str, tuple[Callable[..., Any], int]] = {
    "axes that fit by size alone": (lambda m, x: m.wide(x.reshape(12, 2)).reshape(1, 4, 3, 4), 0),
    "turned before": (lambda m, x: m.wide(to_last(x).reshape(12, 2)).reshape(1, 4, 3, 4), 1),
    "turned before and behind": (
        lambda m, x: to_first(m.wide(to_last(x).reshape(12, 2)).reshape(1, 3, 4, 4)), 2,
    ),
    "turned behind by sizes that fit": (
        lambda m, x: to_first(m.wide(to_last(x).reshape(12, 2)).reshape(1, 4, 3, 4)), 2,
    ),
}  # fmt: skip


"""Axes of equal size, which the order of elements tells apart."""


@pytest.mark.parametrize(
    ("name", "image"),
    [
        *product(LAYERS, [SQUARE, OBLONG]),
        *((name, torch.randn(1, 2, 3, 4)) for name in AMBIGUOUS),
    ],
)
def test_a_pointwise_layer_works_where_its_image_lies(name: str, image: Tensor) -> None:
    write, transposes = (LAYERS | AMBIGUOUS)[name]
    made, _ = lowered(write, image)
    assert_whole(made)
    assert count(made, "static_transpose") == transposes
    assert name in AMBIGUOUS or count(made, "static_reshape") == 0


OTHERS: dict[str, Callable[..., Any]] = {
    "columns mixed": lambda m, x: m.last(m.square(m.first(x))),
    "rows mixed": lambda m, x: m.last(
        m.square(m.first(x).permute(0, 1, 3, 2)).permute(0, 1, 3, 2)
    ),
    "a restore that turns the image": lambda m, x: m.last(
        m.square(to_last(m.first(x))).permute(0, 3, 2, 1)
    ),
    "a restore that keeps channels last": lambda m, x: m.last(m.square(to_last(m.first(x)))),
    "columns gathered in between": lambda m, x: m.last(
        to_first(m.square(to_last(m.first(x))[:, :, torch.tensor([2, 0, 3, 0])]))
    ),
    "channels gathered in between": lambda m, x: m.last(
        to_first(m.square(to_last(m.first(x))[..., torch.tensor([2, 0, 3, 0])]))
    ),
    "the layer's result read in both orders": lambda m, x: (
        y := m.square(to_last(m.first(x))),
        m.last(to_first(y)),
    ),
    "a residual that lies otherwise": lambda m, x: m.last(
        to_first(m.square(to_last(m.first(x))) + x)
    ),
    "a softmax over columns in between": lambda m, x: m.last(
        to_first(m.square(to_last(m.first(x)).softmax(2)))
    ),
    "rows of channels and columns": lambda m, x: m.last(
        to_first(m.square(m.first(x).reshape(-1, 4)).reshape(1, 4, 4, 4))
    ),
    "half rows": lambda m, x: m.last(
        to_first(m.wide(to_last(m.first(x)).reshape(-1, 2))[::2].reshape(1, 4, 4, 4))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_pointwise_where_all_axes_have_one_size_computes_what_it_did(
    name: str,
) -> None:
    lowered(OTHERS[name], SQUARE)


@pytest.mark.parametrize("axis", [0, 3], ids=["batch", "columns"])
def test_a_pointwise_layer_of_a_symbolic_image_is_right_for_every_size(axis: int) -> None:
    sizes = torch.export.Dim("size", min=2, max=9)
    made, module = lowered(
        lambda m, x: to_first(m.down(functional.relu(m.up(to_last(x))))),
        OBLONG,
        dynamic=(({axis: sizes},),),
    )
    assert count(made, "static_transpose") == 2
    for size in (2, 9):
        shape = list(OBLONG.shape)
        shape[axis] = size
        assert_as_eager(made, module, torch.randn(shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_quantized_layer_between_permutes_carries_its_scales_along(dynamic: bool) -> None:
    torch.manual_seed(0)
    module = Image(LAYERS["an activation between two layers"][0]).eval()
    exported = quantize(module, (OBLONG,), per_channel=True, dynamic=dynamic)
    made = stepwell.lower(exported, "xnnpack")
    assert_whole(made)
    assert count(made, "static_transpose") == 2
    layers = kinds(made, "fully_connected")
    assert [kind[1] for kind in layers] == ["qcint8", "qcint8"]
    assert {kind[0] for kind in layers} == {"qdint8" if dynamic else "qint8"}
    result = check(exported, "xnnpack", inputs=(OBLONG,))
    assert result.ok, str(result)
