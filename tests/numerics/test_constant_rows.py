"""Norms of rows that are constant: zero where eager's are, as padding and planes of one color."""

from typing import Any

import pytest
import torch
from eager import Function, lower
from torch import Tensor, nn

import stepwell

VALUES = (1e-3, 0.1, 3.3, -7.7, 33.3, 333.0, 1e3)
NORMS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "layer, 2": (nn.LayerNorm(2), (2, 2)),
    "layer, 18": (nn.LayerNorm(18), (2, 18)),
    "layer, 192": (nn.LayerNorm(192), (2, 192)),
    "layer, 4096": (nn.LayerNorm(4096), (1, 4096)),
    "layer, two axes": (nn.LayerNorm([6, 8]), (2, 6, 8)),
    "group of an image": (nn.GroupNorm(2, 4), (1, 4, 9, 9)),
    "one group": (nn.GroupNorm(1, 4), (1, 4, 9, 9)),
    "group of rows": (nn.GroupNorm(2, 4), (1, 4, 96)),
    "instance": (nn.InstanceNorm2d(3), (1, 3, 14, 14)),
}


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
@pytest.mark.parametrize("name", NORMS)
def test_a_constant_row_is_zero_where_eager_s_is(name: str, target: str) -> None:
    norm, shape = NORMS[name]
    lowered = stepwell.lower(torch.export.export(norm.eval(), (torch.ones(shape),)), target)
    for value in VALUES:
        given = torch.full(shape, value)
        (result,) = lowered.run(given)
        eager: Tensor = norm(given)
        assert float(result.abs().max()) <= max(float(eager.abs().max()), 1e-10)


def test_root_mean_squares_of_constant_rows_are_within_their_roundings() -> None:
    for width in (2, 192, 4096):
        norm = nn.RMSNorm(width, eps=1e-6).eval()
        lowered = stepwell.lower(torch.export.export(norm, (torch.ones(2, width),)), "xnnpack")
        for value in VALUES:
            given = torch.full((2, width), value)
            off = (lowered.run(given)[0] - norm(given.double())).abs().max()
            assert float(off) <= (width + 8) * 2.0**-24


def behind(x: Tensor, layer: nn.Module, norm: nn.Module) -> Tensor:
    """A norm across the outputs of a layer, and what was added to them."""
    y = layer(x).permute(0, 2, 3, 1)
    return norm(y + y.relu()).sigmoid()


def along(x: Tensor, layer: nn.Module, norm: nn.Module) -> Tensor:
    """The same norm along an axis of the image."""
    return norm(layer(x)).sigmoid()


@pytest.mark.parametrize(("model", "count"), [(behind, 0), (along, 1)])
def test_a_norm_across_outputs_of_a_layer_is_spared_the_shift(model: Any, count: int) -> None:
    model = Function(model, nn.Conv2d(3, 8, 1), nn.LayerNorm(8))
    text = str(lower(model, torch.randn(1, 3, 8, 8)).program)
    assert text.count("xnnpack.static_slice") == count
