"""Expands: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.rewrites.views.expands import RULES

test_expands = cases(
    RULES,
    """
remove-noop-expand: an expand that repeats -> unchanged
    %y = aten.expand.default(%x: f32[1, 3], [2, 3])
remove-noop-expand: an expand that adds an axis -> unchanged
    %y = aten.expand.default(%x: f32[2, 3], [1, 2, 3])
""",
)
