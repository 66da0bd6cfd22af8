"""PadToConstantPad: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.slices import pads

test_pad_to_constant_pad = cases(
    pads,
    """
reflection -> refused: mode is reflect
    %y = aten.pad.default(%x: f32[1, 3], [1, 1], "reflect")
the value is kept -> aten.constant_pad_nd.default
    %y = aten.pad.default(%x: f32[2, 3], [1, 0, 0, 1], "constant", 2.5)
""",
)
