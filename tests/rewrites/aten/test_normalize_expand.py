"""NormalizeExpand: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import views

test_normalize_expand = cases(
    views,
    """
normalize-expand: an expand to a symbolic shape -> refused: symbolic
    %y = aten.expand_as.default(%x: f32[1, 3], %z: f32[s0, 3])
normalize-expand: an expand in normal form -> unchanged
    %y = aten.expand.default(%x: f32[1, 3], [2, 3])
""",
)
