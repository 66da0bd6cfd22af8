"""Convolutions whose filter is a constant, scaled at run time, are convolutions with a constant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell


class Modulated(nn.Module):
    """StyleGAN2's layer: scaled by a style, normalized, a filter for each image."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(1, *shape))
        self.style = nn.Linear(4, 3)
        self.write = write

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        return self.write(x, self.weight, 1 + self.style(style))


def normalized(held: Tensor, *axes: int) -> Tensor:
    return held * torch.rsqrt(held.pow(2).sum(axes, keepdim=True) + 1e-8)


def batched(x: Tensor, weight: Tensor, s: Tensor) -> Tensor:
    b, c, h, w = x.shape
    held = normalized(weight * s.view(b, 1, c, 1, 1), 2, 3, 4)
    y = F.conv2d(x.reshape(1, b * c, h, w), held.view(b * 5, c, 3, 3), padding=1, groups=b)
    return y.view(b, 5, h, w)


def transposed(x: Tensor, weight: Tensor, s: Tensor) -> Tensor:
    b, c, h, w = x.shape
    held = normalized(weight.transpose(1, 2) * s.view(b, 1, c, 1, 1), 2, 3, 4)
    held = held.transpose(1, 2).reshape(b * c, 5, 3, 3)
    y = F.conv_transpose2d(x.reshape(1, b * c, h, w), held, stride=2, groups=b)
    return y.view(b, 5, *y.shape[2:])


def of_one(x: Tensor, weight: Tensor, s: Tensor) -> Tensor:
    return F.conv2d(x, weight[0] * s[:1].view(1, 3, 1, 1), torch.ones(5))


CASES: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "one": (batched, (5, 3, 3, 3), 1),
    "a batch": (batched, (5, 3, 3, 3), 2),
    "as many images as channels": (batched, (5, 3, 3, 3), 3),
    "transposed": (transposed, (3, 5, 3, 3), 1),
    "a batch, transposed": (transposed, (3, 5, 3, 3), 2),
    "with a bias": (of_one, (5, 3, 3, 3), 2),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_styles_scale_the_image(case: str) -> None:
    write, shape, images = CASES[case]
    model = Modulated(write, *shape).eval()
    given = torch.randn(images, 3, 6, 7), torch.randn(images, 4)
    lowered = stepwell.lower(torch.export.export(model, given), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    wanted = model(*given)
    torch.testing.assert_close(lowered.run(*given)[0], wanted, rtol=1e-4, atol=1e-5)


def of_windows(x: Tensor, weight: Tensor, s: Tensor) -> Tensor:
    return F.conv2d(x, weight[0] * s[:1].view(1, 1, 1, 3), padding=1)


def of_groups(x: Tensor, weight: Tensor, s: Tensor) -> Tensor:
    return F.conv2d(x, weight[0] * s[:1, :1].view(1, 1, 1, 1), groups=3)


@pytest.mark.parametrize(
    ("write", "shape", "said"),
    [
        (of_windows, (5, 3, 3, 3), "differs along its window"),
        (of_groups, (6, 1, 3, 3), "repeated along its channels|batch is more than one"),
    ],
)
def test_other_filters_stay(write: Any, shape: tuple[int, ...], said: str) -> None:
    """What scales do not explain is left to a kernel, or to `test_filters_as_products.py`."""
    model = Modulated(write, *shape).eval()
    given = torch.randn(1, 3, 6, 7), torch.randn(1, 4)
    exported = torch.export.export(model, given)
    lowered = stepwell.lower(
        exported, "xnnpack", lambda own: own.without("convolution-by-products")
    )
    assert "aten.convolution.default" in lowered.report.outside
    reasons = [r.reason for r in lowered.report.refusals if r.rewrite == "lift-scales-from-filter"]
    assert any(re.search(said, reason) for reason in reasons)
    torch.testing.assert_close(lowered.run(*given)[0], model(*given), rtol=1e-4, atol=1e-5)
