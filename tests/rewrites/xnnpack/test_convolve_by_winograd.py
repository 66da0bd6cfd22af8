"""3×3 convolutions in tiles: paddings, odd sizes, clamps and bias; and what stays direct."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.spatial import Convolution2d
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_winograd import (
    B,
    G,
    convolve_by_winograd,
    winograd_filter,
)

FREE = step(convolve_by_winograd, costs=replace(COSTS, product=1e3))
"""Where products cost so much that tiles always pay."""


def convolved(
    image: str = "1, 8, 8",
    *,
    window: str = "3, 3, 4",
    kind: str = "f32",
    bias: bool = False,
    extra: str = "",
    **changes: Any,
) -> str:
    """A convolution to six channels."""
    fields = {"groups": 1, "padding": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1], **changes}
    numbers = ", ".join(f"{name}={value}" for name, value in fields.items()) + extra
    added = ", %b: weight f32[6]" if bias else ""
    return f"""%y = xnnpack.convolution_2d(%x: {kind}[{image}, 4],
        %w: weight {kind}[6, {window}]{added}, {numbers})"""


@pytest.mark.parametrize(
    ("image", "padding"),
    [
        ("1, 8, 8", [1, 1, 1, 1]),
        ("2, 7, 10", [1, 1, 1, 1]),
        ("1, 9, 5", [1, 0, 0, 1]),
        ("1, 6, 6", [2, 2, 2, 3]),
        ("1, 2, 3", [1, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_tiles_cover_every_result_once(
    image: str, padding: list[int], bias: bool, apply: Any
) -> None:
    done = apply(convolved(image, padding=padding, bias=bias), FREE)
    assert done.count == 1
    assert not any(isinstance(op, Convolution2d) for op in done.program.module.walk())


def test_results_are_clamped_once_and_nothing_before_them(apply: Any) -> None:
    text = convolved(bias=True, extra=", output_min=0.0, output_max=1.0")
    done = apply(text, FREE)
    clamped = [line for line in done.text.splitlines() if "output_min=0.0, output_max=1.0" in line]
    assert len(clamped) == 4 and all("add(" in line or "subtract(" in line for line in clamped)


def test_the_transforms_convolve_four_pixels_with_three_taps_to_two() -> None:
    pixels, taps = torch.arange(1.0, 5.0).double(), torch.tensor([2.0, -3.0, 5.0]).double()
    given = [
        sum(sign * pixels[row.first + at * row.step] for at, sign in enumerate(row.signs))
        for row in B
    ]
    filtered = torch.tensor(G).double() @ taps
    first, second, third, fourth = (torch.stack([*map(torch.as_tensor, given)]) * filtered).tolist()
    wanted = torch.nn.functional.conv1d(pixels[None, None], taps[None, None])[0, 0].tolist()
    assert [first + second + third, second - third - fourth] == wanted


def test_filters_are_transformed_in_double_precision_and_rounded_once() -> None:
    weight = torch.full((1, 3, 3, 1), 0.1)
    exact = 9 * 0.25 * torch.tensor(0.1).double()
    assert winograd_filter(weight, row=1, column=1).item() == exact.float().item()


NEAR_MISSES: dict[str, tuple[dict[str, Any], str]] = {
    "five rows": ({"window": "5, 3, 4", "padding": [2, 1, 2, 1]}, ""),
    "strides": ({"stride": [2, 2]}, ""),
    "holes": ({"padding": [2, 2, 2, 2], "dilation": [2, 2]}, ""),
    "groups": ({"window": "3, 3, 2", "groups": 2}, ""),
    "no padding above": ({"padding": [0, 1, 1, 1]}, "padding"),
    "no padding at the left": ({"padding": [1, 1, 1, 0]}, "padding"),
    "halves": ({"kind": "f16"}, ""),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_convolution_stays_one_node(name: str, refused: Any) -> None:
    changes, reason = NEAR_MISSES[name]
    refused(convolved(**changes), FREE, reason)


test_convolve_by_winograd_without_costs = cases(FREE)("""
an image of symbolic size -> refused: symbolic
    %y = xnnpack.convolution_2d(%x: f32[1, h, 8, 4], %w: weight f32[6, 3, 3, 4], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
it pays -> applied once
    - %y = xnnpack.convolution_2d(%x: f32[n, 8, 8, 4], %w: weight f32[6, 3, 3, 4], %b: weight f32[6], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
    - %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 3, 3, 4], %b: weight f32[6], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
stored weights -> unchanged
    %w = quant.scast(%i: weight "w" i8[6, 3, 3, 4]) -> i8<0.125>[6, 3, 3, 4]
    %y = xnnpack.convolution_2d(%x: i8<0.5>[1, 8, 8, 4], %w, groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
""")


test_convolve_by_winograd = cases(step(convolve_by_winograd))("""
it does not -> applied 0 times
    - %y = xnnpack.convolution_2d(%x: f32[n, 8, 8, 4], %w: weight f32[6, 3, 3, 4], %b: weight f32[6], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
    - %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 3, 3, 4], %b: weight f32[6], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
few channels -> refused: cost more
    %y = xnnpack.convolution_2d(%x: f32[1, 8, 8, 4], %w: weight f32[6, 3, 3, 4], groups=1, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
""")
