"""PreluChannelsLast: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import views

test_prelu_channels_last = cases(
    views,
    """
prelu-channels-last: slopes that stand on the last axis or everywhere need nothing -> applied 0 times
    - %y = aten.prelu.default(%x: f32[2, 4], %w: weight f32[4])
    - %y = aten.prelu.default(%x: f32[2, 4, 3], %w: weight f32[1])
    - %y = aten.prelu.default(%x: f32[2, 4, 3], %w: weight f32[])
prelu-channels-last: slopes of run time -> refused: computed at run time
    %y = aten.prelu.default(%x: f32[2, 4, 3], %w: f32[4])
prelu-channels-last: doubles -> refused: float32 or float16
    %y = aten.prelu.default(%x: f64[2, 4, 3], %w: weight f64[4])
""",
)
