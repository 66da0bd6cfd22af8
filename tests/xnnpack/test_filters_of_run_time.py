"""Convolutions by filters that the program computes: scaled constants, or products."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import assert_as_eager, assert_whole, lower
from torch import Tensor, nn
from torch.nn import functional as F


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
def test_styles_scale_the_image(case: str) -> None:
    write, shape, images = CASES[case]
    model, given = Modulated(write, *shape), (torch.randn(images, 3, 6, 7), torch.randn(images, 4))
    lowered = lower(model, *given)
    assert_whole(lowered)
    assert_as_eager(lowered, model, *given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("write", "shape", "said"),
    [
        (
            lambda x, weight, s: F.conv2d(x, weight[0] * s[:1].view(1, 1, 1, 3), padding=1),
            (5, 3, 3, 3),
            "differs along its window",
        ),
        (
            lambda x, weight, s: F.conv2d(x, weight[0] * s[:1, :1].view(1, 1, 1, 1), groups=3),
            (6, 1, 3, 3),
            "broadcast along its channels|batch size is not 1",
        ),
    ],
    ids=["windows", "groups"],
)
def test_what_scales_do_not_explain_stays(write: Any, shape: tuple[int, ...], said: str) -> None:
    model, given = Modulated(write, *shape), (torch.randn(1, 3, 6, 7), torch.randn(1, 4))
    lowered = lower(model, *given, pipeline=lambda own: own.without("convolution-by-products"))
    assert "aten.convolution.default" in lowered.report.outside
    reasons = [r.reason for r in lowered.report.refusals if r.rewrite == "lift-scales-from-filter"]
    assert any(re.search(said, reason) for reason in reasons)
    assert_as_eager(lowered, model, *given, rtol=1e-4, atol=1e-5)


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1 x 1": ((1, 6, 7, 5), (4, 6, 1, 1), {}),
    "3 x 3": ((2, 3, 8, 7), (5, 3, 3, 3), {"padding": 1}),
    "strided, dilated": ((1, 3, 12, 11), (4, 3, 3, 2), {"stride": 2, "dilation": (2, 1)}),
    "depthwise": ((2, 6, 9, 9), (6, 1, 5, 5), {"padding": 2, "groups": 6}),
    "depthwise, strided": ((1, 6, 9, 10), (6, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 6}),
    "of groups": ((1, 6, 8, 8), (8, 3, 3, 3), {"padding": 1, "groups": 2}),
    "of an image each": ((1, 8, 6, 6), (6, 4, 3, 3), {"groups": 2}),
    "lines": ((1, 4, 12), (3, 4, 3), {"padding": 1}),
}


class Mixed(nn.Module):
    """A filter that is a mixture of two, as CondConv's."""

    def __init__(self, shape: tuple[int, ...], options: dict[str, Any]) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.randn(2, *shape))
        self.bias = nn.Parameter(torch.randn(shape[0]))
        self.options, self.is_line = options, len(shape) == 3

    def forward(self, x: Tensor) -> Tensor:
        share = x.flatten(1).mean(1).sum().sigmoid()
        weight = self.filters[0] * share + self.filters[1] * (1 - share)
        convolve = F.conv1d if self.is_line else F.conv2d
        return convolve(x, weight, self.bias, **self.options).relu()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_filter_of_run_time_is_a_product(form: Any) -> None:
    size, shape, options = form
    model, x = Mixed(shape, options), torch.randn(size)
    lowered = lower(model, x)
    assert_whole(lowered)
    assert_as_eager(lowered, model, x, rtol=1e-4, atol=1e-4)


def test_many_groups_of_several_channels_are_left_to_the_kernel() -> None:
    model, x = Mixed((32, 2, 3, 3), {"groups": 16}), torch.randn(1, 32, 6, 6)
    lowered = lower(model, x)
    assert lowered.report.outside["aten.convolution.default"] == 1
    assert_as_eager(lowered, model, x, rtol=1e-4, atol=1e-4)
