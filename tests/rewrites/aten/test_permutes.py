"""Permutes of permutes: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.rewrites.views.permutes import RULES

test_permutes = cases(
    RULES,
    """
a permute and its inverse vanish -> aten.neg.default
    %a = aten.permute.default(%x: f32[2, 3, 4], [1, 2, 0])
    %b = aten.permute.default(%a, [2, 0, 1])
    %y = aten.neg.default(%b)
merge-permutes: a view between two permutes keeps both -> unchanged
    %a = aten.permute.default(%x: f32[2, 3, 4], [1, 2, 0])
    %b = aten.view.default(%a, [4, 3, 2])
    %y = aten.permute.default(%b, [1, 0, 2])
""",
)
