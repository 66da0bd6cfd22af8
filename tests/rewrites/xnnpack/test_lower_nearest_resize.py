"""LowerNearestResize: factors on either axis, and what it leaves alone."""

from typing import Any

import pytest
import torch

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


@pytest.mark.parametrize(("size", "gives"), [("[6, 5]", "6x5"), ("[4, 12]", "4x12")])
def test_another_ratio_is_refused(size: str, gives: str, refused: Any, method: Any):
    refused(resized(size, gives, method), step(images.nearest_resize), "no whole factor")


def test_a_stated_scale_that_is_not_the_ratio_is_refused(refused: Any, method: Any):
    text = resized("[12, 10]", "12x10", method, ", 3.6, 2.0")
    refused(text, step(images.nearest_resize), "rounds")


def test_an_image_of_symbolic_size_is_enlarged_by_powers_of_two(refused: Any, method: Any):
    given = 'tensor<?x3x4x5xf32, #stepwell.shape<["s0", 3, 4, 5]>>'
    made = 'tensor<?x3x12x15xf32, #stepwell.shape<["s0", 3, 12, 15]>>'
    line = f"%y = aten.upsample_nearest2d.default(%x, [12, 15]) : ({given}) -> {made}"
    refused(method(f"%x: {given}", line, gives=made), step(images.nearest_resize), "rounds")


def test_integers_are_refused(refused: Any, method: Any):
    refused(resized("[8, 10]", "8x10", method, element="ui8"), step(images.nearest_resize), "uint8")


def test_torch_itself_says_whether_pixels_repeat_evenly():
    assert images.repeats_evenly(4, 8, None)
    assert not images.repeats_evenly(4, 12, 3.6)
