"""Convolutions as linear layers row by row: windows, strides, dilations, blocks, and refusals."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from eager import exported
from rewrite_cases import cases
from torch import nn

import stepwell
from stepwell.dialects.xnnpack import FullyConnected
from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions import convolve_by_rows as module
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_rows import convolve_by_rows

FREE = step(convolve_by_rows, costs=replace(COSTS, indirect=1e6))
"""Where convolutions cost so much that rows always pay."""


def convolved(
    image: str = "1, 9, 11, 4",
    *,
    window: tuple[int, int] = (3, 3),
    bias: bool = False,
    extra: str = "",
    kind: str = "f32",
    **changes: Any,
) -> str:
    """A convolution to six channels."""
    fields = {"groups": 1, "padding": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1], **changes}
    numbers = ", ".join(f"{name}={value}" for name, value in fields.items()) + extra
    added = ", %b: weight f32[6]" if bias else ""
    height, width = window
    return f"""%y = xnnpack.convolution_2d(%x: {kind}[{image}],
        %w: weight {kind}[6, {height}, {width}, 4]{added}, {numbers})"""


@pytest.mark.parametrize("block", [1 << 20, 512])
@pytest.mark.parametrize("window", [(3, 3), (1, 3), (3, 1), (2, 2), (5, 4)])
@pytest.mark.parametrize("stride", [[1, 1], [2, 2], [1, 3], [2, 1]])
@pytest.mark.parametrize("dilation", [[1, 1], [2, 1]])
def test_every_result_is_computed_once(
    block: int,
    window: tuple[int, int],
    stride: list[int],
    dilation: list[int],
    apply: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`apply` compares the results; a small block divides the image."""
    monkeypatch.setattr(module, "BLOCK", block)
    batch = "n" if stride == [2, 2] else "2"
    text = convolved(
        f"{batch}, 21, 11, 4",
        window=window,
        stride=stride,
        dilation=dilation,
        padding=[2, 0, 1, 1],
        bias=window != (3, 1),
        extra=", output_min=0.0",
    )
    done = apply(text, FREE)
    assert done.count == 1
    ops = [*done.program.module.walk()]
    assert not any(isinstance(op, Convolution2d) for op in ops)
    layers = sum(isinstance(op, FullyConnected) for op in ops)
    once = window[0] if dilation[0] > 1 else -(-window[0] // stride[0])
    assert layers % once == 0 and (layers > once) == (block == 512)


def test_results_of_eager_and_special_values_stay_where_they_are() -> None:
    """Infinities and NaNs reach the windows that read them, and zeros keep their signs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU6(), nn.Conv2d(64, 40, 5, padding=2))
    image = torch.randn(1, 32, 41, 40)
    lowered = stepwell.lower(exported(net, image), "xnnpack", cpu="x86-64-avx2")
    assert "xnnpack.convolution_2d" not in str(lowered.program)
    torch.testing.assert_close(lowered.run(image)[0], net(image))
    one = nn.Conv2d(32, 40, 3, padding=1).requires_grad_(False)
    one.weight.abs_()
    one.bias.fill_(-0.0)
    image = torch.zeros(1, 32, 24, 24)
    image[0, 3, 5, 5], image[0, 7, 15, 4], image[0, 7, 15, 5] = torch.inf, torch.nan, -torch.inf
    found = stepwell.lower(exported(one, image), "xnnpack", cpu="x86-64-avx2")
    assert "xnnpack.convolution_2d" not in str(found.program)
    torch.testing.assert_close(found.run(image)[0], one(image), equal_nan=True)


test_convolve_by_rows_without_costs = cases(FREE)("""
an image of symbolic size -> refused: symbolic
    %y = xnnpack.convolution_2d(%x: f32[1, h, 8, 4], %w: weight f32[6, 3, 3, 4], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
groups -> refused: group
    %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 3, 3, 2], groups=2, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
one pixel -> unchanged
    %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 1, 1, 4], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
halves -> unchanged
    %y = xnnpack.convolution_2d(%x: f16[1, 8, 8, 4], %w: weight f16[6, 3, 3, 4], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
""")

INTEGERS_PAY = step(convolve_by_rows, costs=replace(COSTS, integers=1e6))
"""Where products of padded channels cost so much that copies always pay."""

test_integers = cases(INTEGERS_PAY)("""
three channels -> applied once
    %w = quant.scast(%i: weight "w" i8[6, 3, 3, 3]) -> i8<0.125>[6, 3, 3, 3]
    %y = xnnpack.convolution_2d(%x: i8<0.5:3>[1, 9, 8, 3], %w, groups=1, padding=[1, 1, 1, 1], stride=[2, 2], dilation=[1, 1], output_min=-3.0) -> i8<0.25:-4>[1, 5, 4, 6]
seven rows, each with its own image -> applied once
    %w = quant.scast(%i: weight "w" i8[6, 7, 2, 2]) -> i8<0.125>[6, 7, 2, 2]
    %y = xnnpack.convolution_2d(%x: i8<0.5>[n, 9, 8, 2], %w, groups=1, padding=[1, 0, 1, 0], stride=[1, 1], dilation=[1, 2]) -> i8<0.25>[n, 5, 6, 6]
eight channels -> refused: cost more
    %w = quant.scast(%i: weight "w" i8[6, 3, 3, 8]) -> i8<0.125>[6, 3, 3, 8]
    %y = xnnpack.convolution_2d(%x: i8<0.5>[1, 9, 8, 8], %w, groups=1, padding=[1, 1, 1, 1], stride=[2, 2], dilation=[1, 1]) -> i8<0.25>[1, 5, 4, 6]
""")

test_convolve_by_rows = cases(step(convolve_by_rows))("""
few channels -> refused: cost more
    %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 3, 3, 4], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
""")
