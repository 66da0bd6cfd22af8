"""PixelShuffleToPermute: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


def test_channels_are_shuffled_between_groups(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x6x2x2xf32>",
            "%y = aten.channel_shuffle.default(%x, 3) : (tensor<1x6x2x2xf32>) -> tensor<1x6x2x2xf32>",
            gives="tensor<1x6x2x2xf32>",
        ),
        step(views.pixel_shuffle_to_permute),
    )
    assert done.ops() == ["aten.view.default", "aten.permute.default", "aten.view.default"]


def test_an_image_without_a_batch_is_shuffled_too(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<4x2x3xf32>",
            "%y = aten.pixel_shuffle.default(%x, 2) : (tensor<4x2x3xf32>) -> tensor<1x4x6xf32>",
            gives="tensor<1x4x6xf32>",
        ),
        step(views.pixel_shuffle_to_permute),
    )
    assert done.ops() == ["aten.view.default", "aten.permute.default", "aten.view.default"]
