"""PixelShuffleToPermute: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import views

test_pixel_shuffle_to_permute = cases(
    views,
    """
pixel-shuffle-to-permute: channels are shuffled between groups -> aten.view.default, aten.permute.default, aten.view.default
    %y = aten.channel_shuffle.default(%x: f32[1, 6, 2, 2], 3)
pixel-shuffle-to-permute: an image without a batch is shuffled too -> aten.view.default, aten.permute.default, aten.view.default
    %y = aten.pixel_shuffle.default(%x: f32[4, 2, 3], 2)
""",
)
