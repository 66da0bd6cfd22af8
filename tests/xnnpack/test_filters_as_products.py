"""Convolutions by filters that the program computes, in the delegate."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepwell

FORMS = {
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

    def __init__(self, shape: tuple[int, ...], options: dict[str, object]) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.randn(2, *shape))
        self.bias = nn.Parameter(torch.randn(shape[0]))
        self.options, self.is_line = options, len(shape) == 3

    def forward(self, x: Tensor) -> Tensor:
        share = x.flatten(1).mean(1).sum().sigmoid()
        weight = self.filters[0] * share + self.filters[1] * (1 - share)
        convolve = F.conv1d if self.is_line else F.conv2d
        return convolve(x, weight, self.bias, **self.options).relu()  # pyright: ignore


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_filter_of_run_time_is_a_product(form: tuple[tuple[int, ...], ...]) -> None:
    size, shape, options = form
    model, x = Mixed(shape, options).eval(), torch.randn(size)  # pyright: ignore
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    with torch.no_grad():
        torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=1e-4)


def test_many_groups_of_several_channels_are_left_to_the_kernel() -> None:
    model = Mixed((32, 2, 3, 3), {"groups": 16}).eval()
    x = torch.randn(1, 32, 6, 6)
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack")
    assert lowered.report.outside["aten.convolution.default"] == 1
    with torch.no_grad():
        torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=1e-4)
