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
    method: Any,
    x: str = "1x8x8x4",
    y: str = "1x8x8x6",
    w: str = "6x3x3x4",
    *,
    kind: str = "f32",
    bias: bool = False,
    extra: str = "",
    **changes: Any,
) -> str:
    """A method that convolves; shapes as `1x8x8x4`."""
    fields = {"groups": 1, "padding": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1], **changes}
    numbers = ", ".join(f"{name}={value}" for name, value in fields.items()) + extra
    given = [f"tensor<{shape}x{kind}>" for shape in (x, w, *(["6"] if bias else []))]
    made = f"tensor<{y}x{kind}>"
    names = ", ".join(("%x", "%w", "%b")[: len(given)])
    lines = [f'%w = stepwell.weight <"w"> "parameter" : {given[1]}']
    if bias:
        lines.append(f'%b = stepwell.weight <"b"> "parameter" : {given[2]}')
    lines.append(
        f"%y = xnnpack.convolution_2d({names}, {numbers}) : ({', '.join(given)}) -> {made}"
    )
    return method(f"%x: tensor<{x}x{kind}>", *lines, gives=made)


@pytest.mark.parametrize(
    ("x", "y", "padding"),
    [
        ("1x8x8x4", "1x8x8x6", [1, 1, 1, 1]),
        ("2x7x10x4", "2x7x10x6", [1, 1, 1, 1]),
        ("1x9x5x4", "1x8x4x6", [1, 0, 0, 1]),
        ("1x6x6x4", "1x8x9x6", [2, 2, 2, 3]),
        ("1x2x3x4", "1x2x2x6", [1, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_tiles_cover_every_result_once(
    x: str, y: str, padding: list[int], bias: bool, apply: Any, method: Any
) -> None:
    done = apply(convolved(method, x, y, padding=padding, bias=bias), FREE)
    assert done.count == 1
    assert not any(isinstance(op, Convolution2d) for op in done.program.module.walk())


def test_results_are_clamped_once_and_nothing_before_them(apply: Any, method: Any) -> None:
    text = convolved(method, bias=True, extra=", output_min=0.0, output_max=1.0")
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
    "five rows": ({"w": "6x5x3x4", "padding": [2, 1, 2, 1]}, ""),
    "strides": ({"y": "1x4x4x6", "stride": [2, 2]}, ""),
    "holes": ({"padding": [2, 2, 2, 2], "dilation": [2, 2]}, ""),
    "groups": ({"w": "6x3x3x2", "groups": 2}, ""),
    "no padding above": ({"y": "1x7x8x6", "padding": [0, 1, 1, 1]}, "padding"),
    "no padding at the left": ({"y": "1x8x7x6", "padding": [1, 1, 1, 0]}, "padding"),
    "halves": ({"kind": "f16"}, ""),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_convolution_stays_one_node(name: str, refused: Any, method: Any) -> None:
    changes, reason = NEAR_MISSES[name]
    refused(convolved(method, **changes), FREE, reason)


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
