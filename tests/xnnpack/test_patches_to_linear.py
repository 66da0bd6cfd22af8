"""Convolutions over patches become linear layers where that is the same and gains."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_quantized import inputs_of, kinds, lowered, stock
from test_quantized_forms import UNIT, checked, qdq
from torch import nn
from torch.nn import functional

from quantized import quantize
from stepwell.lowering import Lowered
from stepwell.validation.check import check


def convolved(layer: nn.Module, *shape: int) -> Lowered:
    """A convolution alone, lowered; the runtime's result is eager PyTorch's."""
    torch.manual_seed(0)
    x = inputs_of(*shape)
    made = lowered(torch.export.export(layer.eval(), (x,)))
    torch.testing.assert_close(made.run(x)[0], layer(x), rtol=1e-4, atol=1e-5)
    return made


@pytest.mark.parametrize("shape", [(1, 3, 16, 24), (2, 3, 8, 8)])
def test_patches_of_an_image_are_rows_of_a_linear_layer(shape: tuple[int, ...]) -> None:
    made = convolved(nn.Conv2d(3, 10, 4, 4), *shape)
    assert kinds(made, "fully_connected") and not kinds(made, "convolution_2d")


def test_patches_of_an_image_that_lies_channels_last_stay_so() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 10, (2, 4), (2, 4)))
    made = convolved(layers, 1, 3, 8, 8)
    assert len(kinds(made, "convolution_2d")) == 1 and len(kinds(made, "fully_connected")) == 1
    assert len(kinds(made, "static_transpose")) == 3


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (lambda: nn.Conv2d(3, 10, 4, 4), 18),
        (lambda: nn.Conv2d(3, 10, 4, 2), 16),
        (lambda: nn.Conv2d(3, 10, 4, 4, padding=2), 16),
        (lambda: nn.Conv2d(4, 10, 4, 4, groups=2), 16),
        (lambda: nn.Conv2d(3, 10, 2, 2, dilation=2), 16),
        (lambda: nn.Conv2d(3, 10, 1), 16),
    ],
    ids=["rows left out", "overlap", "padding", "groups", "dilation", "single pixels"],
)
def test_windows_that_do_not_tile_the_image_stay_a_convolution(
    layer: Callable[[], nn.Conv2d], size: int
) -> None:
    made = layer()
    assert kinds(convolved(made, 1, made.in_channels, size, size), "convolution_2d")


@pytest.mark.parametrize(("channels", "node"), [(3, "fully_connected"), (8, "convolution_2d")])
def test_int8_patches_are_rows_where_the_kernel_would_pad_channels(
    channels: int, node: str
) -> None:
    def write(m: Any, x: torch.Tensor) -> torch.Tensor:
        return qdq(functional.conv2d(qdq(x, 0.03, 5), m.weight(), m.b, 4), UNIT, -7)

    x = inputs_of(1, channels, 8, 8)
    made = checked(write, x, UNIT, (6, channels, 4, 4))
    assert [kind[0] for kind in kinds(made, node)] == ["qint8"]


def test_patches_quantized_at_run_time_are_quantized_row_by_row() -> None:
    x = inputs_of(1, 3, 16, 16) * torch.linspace(0.1, 4.0, 16)  # Patches of other ranges.
    layer = nn.Conv2d(3, 6, 4, 4).eval()
    exported = quantize(layer, (x,), per_channel=True, dynamic=True)
    made = lowered(exported)
    assert kinds(made, "fully_connected") == [("qdint8", "qcint8", "fp32", "fp32")]
    (want,) = stock(exported, [x])
    apart, theirs = (float((y - layer(x)).square().mean()) for y in (made.run(x)[0], want))
    assert apart < theirs
    result = check(exported, "xnnpack", inputs=(x,))
    assert result.ok, str(result)
