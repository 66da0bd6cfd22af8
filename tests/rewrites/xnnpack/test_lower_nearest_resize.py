"""LowerNearestResize: factors on either axis, and what it leaves alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import images


def resized(size: str, gives: str, method: Any, more: str = "", element: str = "f32") -> str:
    given, made = f"tensor<2x3x4x5x{element}>", f"tensor<2x3x{gives}x{element}>"
    return method(
        f"%x: {given}",
        f"%y = aten.upsample_nearest2d.default(%x, {size}{more}) : ({given}) -> {made}",
        gives=made,
    )


@pytest.mark.parametrize("size", [(8, 10), (4, 10), (12, 5), (28, 15), (4, 5)])
def test_whole_factors_repeat_pixels_bit_for_bit(size: tuple[int, int], apply: Any, method: Any):
    text = resized(str(list(size)), f"{size[0]}x{size[1]}", method)
    done = apply(text, step(images.nearest_resize))
    assert done.count == 1
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(
        done.program.run(x)[0], torch.nn.functional.interpolate(x, size=size, mode="nearest")
    )


test_lower_nearest_resize = cases(
    images,
    """
lower-nearest-resize: another ratio -> refused: no whole factor
    - %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [6, 5])
    - %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [4, 12])
lower-nearest-resize: a stated scale that is not the ratio -> refused: rounds
    %y = aten.upsample_nearest2d.default(%x: f32[2, 3, 4, 5], [12, 10], 3.6, 2.0)
lower-nearest-resize: an image of symbolic size is enlarged by powers of two -> refused: rounds
    %y = aten.upsample_nearest2d.default(%x: f32[s0, 3, 4, 5], [12, 15])
lower-nearest-resize: integers -> refused: uint8
    %y = aten.upsample_nearest2d.default(%x: ui8[2, 3, 4, 5], [8, 10])
""",
)


def test_torch_itself_says_whether_pixels_repeat_evenly():
    assert images.repeats_evenly(4, 8, None)
    assert not images.repeats_evenly(4, 12, 3.6)
